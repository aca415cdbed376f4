/** The health of a data set: balance, sizes, and each kind of trouble with the pictures that show it. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../../../api/client";
import { datasetPath, thumbnailUrl, type Dataset } from "../../../api/vision";
import type { ClassHealth, HealthIssue, VisionHealth } from "../../../api/types";
import { Button, Wrong } from "../../../parts/controls";
import { Bar, Card, Facts, layout, Skeleton } from "../../../parts/layout";
import { SEVERITY_TONES, toneClass } from "../../../parts/state";
import { useParam } from "../../../text/address";
import { count, percent, plural } from "../../../text/format";
import css from "./data.module.css";

export function HealthTab({ set }: { set: Dataset }) {
  const [near, setNear] = useParam("near");
  const found = useQuery({
    queryKey: ["vision", "dataset", set.id, "health", near],
    queryFn: ({ signal }) => get<VisionHealth>(datasetPath(set.id, "/health"), { near: near ? "true" : undefined }, signal),
  });
  if (found.error) return <Wrong error={found.error} />;
  if (!found.data) return <Skeleton lines={6} />;
  const health = found.data;
  const counts = health.counts as Dataset["counts"];
  const all = Object.values(health.splits).reduce((sum, one) => sum + one, 0);
  return (
    <div className={css.stack}>
      <div className={css.two}>
        <Card title="At a glance">
          <Facts facts={[
            ["Pictures", count(counts.pictures)], ["Labelled", count(counts.labelled)], ["Auto", count(counts.auto)], ["Unlabelled", count(counts.unlabelled)],
            ...["train", "validation", "test"].map((split) => [split, all ? percent((health.splits[split] ?? 0) / all) : "–"] as const),
          ]} />
        </Card>
        <Card title="Sizes">
          <Facts facts={health.sizes.slice(0, 8).map((one) => [`${one.width} × ${one.height}`, count(one.count)] as const)} />
        </Card>
      </div>
      {health.labels.length > 0 && <Balance title="Objects by label" classes={health.labels} objects />}
      {health.categories.length > 0 && <Balance title="Pictures by category" classes={health.categories} />}
      {health.issues.length === 0 && <Card title="Nothing stands out"><p className={layout.note}>No duplicates, no label outside its picture, no class that is too small.</p></Card>}
      {health.issues.map((issue) => <Issue key={issue.kind + issue.text} issue={issue} set={set} />)}
      {!near && <div><Button icon="search" onClick={() => setNear("1")}>Look for pictures that are nearly the same, too</Button></div>}
    </div>
  );
}

function Balance({ title, classes, objects = false }: { title: string; classes: readonly ClassHealth[]; objects?: boolean }) {
  const value = (one: ClassHealth): number => (objects ? one.shapes : one.pictures);
  const most = Math.max(1, ...classes.map(value));
  return (
    <Card title={title}>
      <table className={layout.table}>
        <thead><tr><th>Name</th><th style={{ width: "40%" }}><span className="unseen">Share</span></th><th className={layout.number}>{objects ? "Objects" : "Pictures"}</th><th className={layout.number}>Train, validation, test</th></tr></thead>
        <tbody>
          {classes.map((one) => (
            <tr key={one.name}>
              <td style={{ minWidth: "7rem" }}>{one.name}</td>
              <td><Bar share={value(one) / most} label={`${one.name}: ${value(one)}`} tone={value(one) < most / 10 ? "var(--amber)" : "var(--blue)"} /></td>
              <td className={layout.number}>{count(value(one))}</td>
              <td className={layout.number}>{["train", "validation", "test"].map((split) => count(one.splits[split] ?? 0)).join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

function Issue({ issue, set }: { issue: HealthIssue; set: Dataset }) {
  return (
    <Card title={<span className={toneClass(SEVERITY_TONES[issue.level] ?? "grey")}>{issue.kind.replaceAll("_", " ")}</span>} label={issue.kind} extra={<span className={layout.note}>{plural(issue.count, "picture")}</span>}>
      <p>{issue.text}</p>
      {issue.files.length > 0 && (
        <ul className={css.faces}>
          {issue.files.slice(0, 24).map((file) => (
            <li key={file}><Link href={`/vision/label/${encodeURIComponent(set.id)}/${encodeURIComponent(file)}`} aria-label={`open ${file}`}><img src={thumbnailUrl(file, 128)} alt="" loading="lazy" /></Link></li>
          ))}
        </ul>
      )}
    </Card>
  );
}
