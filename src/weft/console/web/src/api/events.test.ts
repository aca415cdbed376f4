import { describe, expect, it } from "vitest";
import { EventParser } from "./events";

describe("EventParser", () => {
  it("reads messages that come in pieces", () => {
    const parser = new EventParser();
    expect(parser.push('id: 7\nevent: state\nda')).toEqual([]);
    expect(parser.push('ta: {"job":3}\n\n: beat\n\nevent: points\n')).toEqual([{ id: "7", kind: "state", data: { job: 3 } }]);
    expect(parser.push('data: {"a":\ndata: 1}\n\n')).toEqual([{ id: "7", kind: "points", data: { a: 1 } }]);
    expect(parser.lastId).toBe("7");
  });

  it("takes line ends of both kinds and passes over what is no JSON", () => {
    const parser = new EventParser();
    expect(parser.push("event: x\r\ndata: {}\r\n\r\nevent: y\ndata: nonsense\n\n")).toEqual([{ id: "", kind: "x", data: {} }]);
  });
});
