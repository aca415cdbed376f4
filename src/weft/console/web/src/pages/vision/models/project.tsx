/** Projects of models: a model is put into one, and a new one is made where it is needed. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, send } from "../../../api/client";
import type { PictureModelDetail, PictureProjectsAnswer, PictureProjectView } from "../../../api/types";
import { Button, Dialog, Field, tell, tellError, Wrong } from "../../../parts/controls";
import { submitted } from "../../settings/parts";
import data from "../data/data.module.css";

const NEW = "new"; // no number, as projects have

export function ProjectChoice({ model, path }: { model: PictureModelDetail; path: string }) {
  const client = useQueryClient();
  const [making, setMaking] = useState(false);
  const projects = useQuery({ queryKey: ["vision", "projects"], queryFn: () => get<PictureProjectsAnswer>("/vision/projects") });
  const put = (project: number | null): Promise<void> => send("PATCH", path, { project }).then(() => {
    tell(project === null ? "it is in no project" : "moved");
    for (const key of [["vision", "model"], ["vision", "models"], ["vision", "projects"]]) void client.invalidateQueries({ queryKey: key });
  });
  const list = projects.data?.projects ?? [];
  const open = list.find((one) => one.id === model.project);
  return (
    <>
      <select aria-label="Project" value={model.project ?? ""} title={open?.auto_deploy ? "its newest model is deployed by itself" : undefined} onChange={(event) => (event.target.value === NEW ? setMaking(true) : void put(event.target.value ? Number(event.target.value) : null).catch(tellError))}>
        <option value="">no project</option>
        {list.map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}
        <option value={NEW}>new project…</option>
      </select>
      {making && <NewProject dataset={model.dataset} onClose={() => setMaking(false)} onMade={(made) => void put(made.id).catch(tellError)} />}
    </>
  );
}

function NewProject({ dataset, onClose, onMade }: { dataset: string; onClose: () => void; onMade: (made: PictureProjectView) => void }) {
  const [wrong, setWrong] = useState<unknown>(null);
  const make = submitted((form) => {
    const body = { name: form.get("name"), description: form.get("description"), enforce: form.has("enforce"), auto_deploy: form.has("auto"), datasets: [dataset] };
    send<PictureProjectView>("POST", "/vision/projects", body).then((made) => {
      onMade(made);
      onClose();
    }, setWrong);
  });
  return (
    <Dialog title="New project" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" form="new-project">Make it</Button></>}>
      <form id="new-project" className={data.stack} onSubmit={make}>
        {wrong ? <Wrong error={wrong} /> : null}
        <Field label="Name"><input type="text" name="name" required maxLength={64} autoFocus /></Field>
        <Field label="What it is for"><input type="text" name="description" /></Field>
        <label><input type="checkbox" name="enforce" /> only models in production may be deployed</label>
        <label><input type="checkbox" name="auto" /> its newest model is deployed by itself</label>
      </form>
    </Dialog>
  );
}
