/** Where a field stands in a YAML text, so that a problem can lead to its line. */

/** Returns the line, from 0, of a field such as `resources.memory`; null where it is not written. */
export function lineOf(text: string, path: string): number | null {
  const wanted = path.replace(/\[(\d+)\]/g, "").split(".").filter(Boolean);
  const lines = text.split("\n");
  let found: number | null = null;
  let from = 0;
  let depth = -1;
  for (const name of wanted) {
    let at: number | null = null;
    for (let index = from; index < lines.length; index += 1) {
      const line = lines[index]!;
      if (!line.trim() || line.trim().startsWith("#")) continue;
      const indent = line.length - line.trimStart().length;
      if (depth >= 0 && indent <= depth && index > from) break;
      const key = new RegExp(`(?:^|[{,\\s-])["']?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}["']?\\s*:`);
      if (key.test(line)) {
        at = index;
        depth = Math.max(depth, indent);
        break;
      }
    }
    if (at === null) return found;
    found = at;
    from = at;
  }
  return found;
}
