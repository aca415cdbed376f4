/** Log lines as they are shown: without terminal codes, with what was searched for marked; all pure. */

export interface Piece {
  text: string;
  kind: "plain" | "match" | "link";
}

// eslint-disable-next-line no-control-regex
const TERMINAL_CODES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007/g;
const ERROR = /\b(?:error|exception|traceback|fatal|critical|killed|out of memory|nan)\b|Error:|Exception:/i;
const WARNING = /\bwarn(?:ing)?\b|Warning:/i;
const LINK = /https?:\/\/[^\s"'<>)\]]+/g;
export const FIRST_ERROR = "Traceback|Error|Exception|FATAL|CRITICAL|Killed";

export function plainText(line: string): string {
  return line.replace(TERMINAL_CODES, "").replace(/\r+$/, "").replace(/^[^]*\r/, "");
}

export function severity(line: string): "error" | "warning" | "plain" {
  if (ERROR.test(line)) return "error";
  return WARNING.test(line) ? "warning" : "plain";
}

export function expression(text: string): RegExp | null {
  if (!text) return null;
  try {
    return new RegExp(text, "g");
  } catch {
    return null;
  }
}

/** Cuts a line at matches of a search and at links. */
export function pieces(line: string, search: RegExp | null): Piece[] {
  const marks: { from: number; to: number; kind: "match" | "link" }[] = [];
  for (const found of line.matchAll(LINK)) marks.push({ from: found.index, to: found.index + found[0].length, kind: "link" });
  if (search) {
    for (const found of line.matchAll(search)) {
      const [from, to] = [found.index, found.index + found[0].length];
      if (to > from && !marks.some((mark) => from < mark.to && to > mark.from)) marks.push({ from, to, kind: "match" });
    }
  }
  marks.sort((a, b) => a.from - b.from);
  const cut: Piece[] = [];
  let at = 0;
  for (const mark of marks) {
    if (mark.from > at) cut.push({ text: line.slice(at, mark.from), kind: "plain" });
    cut.push({ text: line.slice(mark.from, mark.to), kind: mark.kind });
    at = mark.to;
  }
  if (at < line.length || cut.length === 0) cut.push({ text: line.slice(at), kind: "plain" });
  return cut;
}

export function rankName(rank: number): string {
  return rank < 0 ? "launcher" : `rank ${rank}`;
}
