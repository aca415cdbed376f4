/** Numbers, sizes, times and durations as people read them. */

export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${pad(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${pad(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (value: number): string => String(value).padStart(2, "0");

/** Returns how long ago something was: "3 m", "yesterday" is left to the reader. */
export function ago(ms: number, now: number = Date.now()): string {
  const seconds = Math.round((now - ms) / 1000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 30 * 86_400) return `${Math.floor(seconds / 86_400)} d ago`;
  return new Date(ms).toLocaleDateString("en-CA");
}

/** Returns when something will be: "in 12 m". */
export function until(ms: number, now: number = Date.now()): string {
  const wait = ms - now;
  return wait <= 1000 ? "now" : `in ${duration(wait).replace(/ \d+ s$/, "")}`;
}

export function moment(ms: number): string {
  const date = new Date(ms);
  const day = date.toLocaleDateString("en-CA");
  const clock = date.toLocaleTimeString("en-GB");
  return `${day} ${clock}`;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** Returns a number with four figures that count; exponents where zeros would hide it. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return count(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

export function count(value: number): string {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

const ROUNDS_UP = 0.9995; // of a unit: from here on three figures show the next one, 1 MiB in place of 1024 KiB

/** Returns a size as `weft.text` does: three figures in the largest unit that fits. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 * ROUNDS_UP && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : Number(size.toPrecision(3))} ${units[unit]}`;
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** Returns a share with two figures that count where it is small: 0.4 %. */
export function finePercent(share: number): string {
  return Math.abs(share) < 0.1 ? `${Number((share * 100).toPrecision(2))} %` : percent(share);
}

export function plural(amount: number, one: string, many: string = `${one}s`): string {
  return `${number(amount)} ${amount === 1 ? one : many}`;
}
