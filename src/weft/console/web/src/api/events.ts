/** Server-sent events, parsed from pieces of text as they come. */

export interface Message {
  id: string;
  kind: string;
  data: Record<string, unknown>;
}

/** Cuts a stream of text into messages; comments count as a sign of life and give none. */
export class EventParser {
  private rest = "";
  private last = "";

  /** The id of the newest message, which resumes the stream after a break. */
  get lastId(): string {
    return this.last;
  }

  push(piece: string): Message[] {
    const text = (this.rest + piece).replaceAll("\r\n", "\n");
    const blocks = text.split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map((block) => this.parse(block)).filter((message) => message !== null);
  }

  private parse(block: string): Message | null {
    let kind = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      if (line.startsWith(":")) continue;
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "id") this.last = value;
      else if (name === "event") kind = value;
      else if (name === "data") data.push(value);
    }
    if (data.length === 0 && kind === "message") return null;
    let parsed: Record<string, unknown> = {};
    try {
      parsed = data.length ? (JSON.parse(data.join("\n")) as Record<string, unknown>) : {};
    } catch {
      return null;
    }
    return { id: this.last, kind, data: parsed };
  }
}
