import { describe, expect, it } from "vitest";
import { addressesOf, nameFor, packed, withClasses, withoutLists } from "../uploads";
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

  it("sends folders of splits and of masks as one zip: the service reads what they tell", async () => {
    expect((await packed([sent("set/train/red/1.jpg"), sent("set/test/red/2.jpg")])).map((one) => one.name)).toEqual(["set.zip"]);
    expect((await packed([sent("set/images/1.jpg"), sent("set/masks/1.png")])).map((one) => one.name)).toEqual(["set.zip"]);
    expect((await packed([sent("train/red/1.jpg"), sent("val/red/2.jpg")])).map((one) => one.name)).toEqual(["train.zip", "val.zip"]);
    expect(withClasses([sent("train/1.jpg"), sent("val/2.jpg")]).map((one) => one.category)).toEqual([undefined, undefined]);
    expect(withClasses([sent("train/1.jpg"), sent("car/2.jpg")]).map((one) => one.category)).toEqual(["train", "car"]);
  });

  it("sends pictures together with the labels that were dropped with them", async () => {
    expect((await packed([sent("a.jpg"), sent("labels.json"), sent("old.zip")])).map((one) => one.name)).toEqual(["old.zip", "files.zip"]);
    expect((await packed([sent("labels.json")])).map((one) => one.name)).toEqual(["labels.json"]);
  });

  it("takes a text with nothing but addresses as a list of pictures", async () => {
    expect(addressesOf("# mine\nhttps://host/a.jpg\r\n\nhttp://host/b.jpg ")).toEqual(["https://host/a.jpg", "http://host/b.jpg"]);
    expect(addressesOf("https://host/a.jpg\nhello")).toEqual([]);
    const found = await withoutLists([sent("list.txt", "https://host/a.jpg"), sent("a.txt", "0 0.5"), sent("set/list.txt", "https://host/a.jpg")]);
    expect([found.urls, found.rest.map((one) => one.name)]).toEqual([["https://host/a.jpg"], ["a.txt", "set/list.txt"]]);
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
