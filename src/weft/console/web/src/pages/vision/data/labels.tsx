/** Labels and categories of a data set: order (their digits), colours, names; renaming one renames it in every picture. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { send } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import { datasetPath, invalidateDataset, type Dataset } from "../../../api/vision";
import type { LabelView, VisionLabelEntry } from "../../../api/types";
import { Button, tell, tellError } from "../../../parts/controls";
import { Card, layout } from "../../../parts/layout";
import { count } from "../../../text/format";
import css from "./data.module.css";

export function LabelsTab({ set }: { set: Dataset }) {
  return (
    <div className={css.two}>
      <Names set={set} kind="labels" title="Labels of objects" />
      <Names set={set} kind="categories" title="Categories of pictures" />
    </div>
  );
}

function Names({ set, kind, title }: { set: Dataset; kind: "labels" | "categories"; title: string }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const names = set[kind];
  const [fresh, setFresh] = useState("");
  async function save(entries: VisionLabelEntry[], done: string): Promise<void> {
    try {
      await send("PUT", datasetPath(set.id, "/labels"), { [kind]: entries });
      tell(done);
    } catch (error) {
      tellError(error);
    }
    invalidateDataset(client, set.id);
    void client.invalidateQueries({ queryKey: ["vision", "file"] });
  }
  const entry = (one: LabelView): VisionLabelEntry => ({ name: one.name, colour: one.colour });
  const move = (index: number, by: number): void => {
    const next = names.map(entry);
    const [taken] = next.splice(index, 1);
    next.splice(index + by, 0, taken!);
    void save(next, "ordered");
  };
  return (
    <Card title={title} extra={<span className={layout.note}>the first ten have the digits 1 to 0</span>}>
      <ol className={css.names}>
        {names.map((one, index) => (
          <li key={one.name}>
            <kbd>{index < 10 ? (index + 1) % 10 : ""}</kbd>
            {mayAct ? (
              <>
                <input type="color" aria-label={`colour of ${one.name}`} defaultValue={one.colour} onBlur={(event) => event.target.value !== one.colour && void save(names.map((old) => (old === one ? { ...entry(old), colour: event.target.value } : entry(old))), "coloured")} />
                <input type="text" aria-label={`name of ${one.name}`} defaultValue={one.name} maxLength={64} onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()} onBlur={(event) => {
                  const name = event.target.value.trim();
                  if (name && name !== one.name) void save(names.map((old) => (old === one ? { ...entry(old), name, was: one.name } : entry(old))), `${one.name} is ${name} now`);
                }} />
              </>
            ) : <><i className={css.dot} style={{ background: one.colour }} /><span>{one.name}</span></>}
            <Link href={`/vision/data/${encodeURIComponent(set.id)}?${kind === "labels" ? "label" : "category"}=${encodeURIComponent(one.name)}`}>{count(one.pictures)}<span className="unseen"> pictures with {one.name}</span></Link>
            {mayAct && (
              <span className={css.row}>
                <Button small kind="quiet" icon="up" aria-label={`${one.name} up`} disabled={index === 0} onClick={() => move(index, -1)} />
                <Button small kind="quiet" icon="down" aria-label={`${one.name} down`} disabled={index === names.length - 1} onClick={() => move(index, 1)} />
                <Button small kind="quiet" icon="trash" aria-label={`remove ${one.name}`} disabled={one.pictures > 0} title={one.pictures ? "pictures have it" : "remove"} onClick={() => void save(names.filter((old) => old !== one).map(entry), "removed")} />
              </span>
            )}
          </li>
        ))}
      </ol>
      {names.length === 0 && <p className={layout.note}>None yet.</p>}
      {mayAct && (
        <form
          className={css.row}
          onSubmit={(event) => {
            event.preventDefault();
            if (fresh.trim()) void save([...names.map(entry), { name: fresh.trim() }], "added").then(() => setFresh(""));
          }}
        >
          <input type="text" aria-label={`new: ${title.toLowerCase()}`} placeholder="A new one" value={fresh} maxLength={64} onChange={(event) => setFresh(event.target.value)} />
          <Button type="submit" icon="plus">Add</Button>
        </form>
      )}
    </Card>
  );
}
