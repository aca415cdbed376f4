/** A value as YAML for reading: enough for specifications, which are plain data. */

function scalar(value: unknown): string {
  if (typeof value !== "string") return String(value);
  const plain = /^[A-Za-z_./~][\w ./:@%+=~,-]*$/.test(value) && !/^(?:true|false|null|yes|no|on|off)$/i.test(value) && !/: |:$| #/.test(value);
  return plain ? value : JSON.stringify(value);
}

const empty = (value: unknown): boolean =>
  value === null || value === "" || (typeof value === "object" && Object.keys(value as object).length === 0);

/** Returns YAML; fields without a value are left out. */
export function yaml(value: unknown, depth: number = 0): string {
  const pad = "  ".repeat(depth);
  if (Array.isArray(value)) {
    return value.map((item) => (item && typeof item === "object" ? `${pad}- ${yaml(item, depth + 1).trimStart()}` : `${pad}- ${scalar(item)}\n`)).join("");
  }
  if (value && typeof value === "object") {
    return Object.entries(value)
      .filter(([, inner]) => inner !== undefined && !empty(inner))
      .map(([name, inner]) => (inner && typeof inner === "object" ? `${pad}${name}:\n${yaml(inner, depth + 1)}` : `${pad}${name}: ${scalar(inner)}\n`))
      .join("");
  }
  return `${pad}${scalar(value)}\n`;
}
