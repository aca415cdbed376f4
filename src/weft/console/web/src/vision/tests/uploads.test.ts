import { describe, expect, it } from "vitest";
import { nameFor, packed, withClasses } from "../uploads";
import { crc32, zipOf } from "../zip";

const sent = (name: string, text: string = name) => ({ file: new File([text], name.split("/").at(-1)!), name });

describe("a drop of files", () => {
  it("is named after its folder or its one file, and never as another data set", () => {
    expect(nameFor([sent("cells/a.jpg"), sent("cells/b.jpg")], [])).toBe("cells");
    expect(nameFor([sent("my cells.zip")], ["my-cells"])).toBe("my-cells-2");
    expect(nameFor([sent("a.jpg"), sent("b.jpg")], [])).toBe("pictures");
  });

  it("takes several folders as classes, and one folder as none", () => {
    expect(withClasses([sent("daisy/1.jpg"), sent("rose/2.jpg"), sent("3.jpg")]).map((one) => one.category)).toEqual(["daisy", "rose", undefined]);
    expect(withClasses([sent("daisy/1.jpg"), sent("daisy/2.jpg")])[0]!.category).toBeUndefined();
  });

  it("sends a folder with labels as one zip, and other files as they are", async () => {
    const files = await packed([sent("voc/JPEGImages/a.jpg"), sent("voc/Annotations/a.xml"), sent("roses/red/1.jpg"), sent("x.jpg")]);
    expect(files.map((one) => one.name)).toEqual(["roses/red/1.jpg", "x.jpg", "voc.zip"]);
  });
});

describe("a zip", () => {
  it("has the sums and places that unpackers look for", async () => {
    expect(crc32(new TextEncoder().encode("123456789"))).toBe(0xcbf43926);
    const bytes = new Uint8Array(await (await zipOf([{ name: "a/ä.txt", file: new Blob(["hello"]) }])).arrayBuffer());
    const view = new DataView(bytes.buffer);
    const end = bytes.length - 22;
    expect([view.getUint32(0, true), view.getUint32(end, true), view.getUint16(end + 10, true)]).toEqual([0x04034b50, 0x06054b50, 1]);
    const listed = view.getUint32(end + 16, true);
    expect(view.getUint32(listed, true)).toBe(0x02014b50);
    expect(new TextDecoder().decode(bytes.slice(38, 43))).toBe("hello");
  });
});
