/** The settings of a study as study.yaml holds them, and what can be changed while it runs: budget, parallelism. */
import { useMayAct } from "../../../api/queries";
import { CodeText } from "../../../parts/code";
import { Button, Field } from "../../../parts/controls";
import { Card, layout } from "../../../parts/layout";
import { yaml } from "../../../text/yaml";
import { submitted } from "../../settings/parts";
import { useAskStudy } from "../live";
import css from "../studies.module.css";
import type { StudyProps } from "../view";

/** Returns the settings that say something: those that are empty, and zero where that is nothing, are left out. */
export function told(config: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0) && !(value && typeof value === "object" && Object.values(value).every((inner) => inner === null))));
}

export default function SettingsTab({ id, detail }: StudyProps) {
  const mayAct = useMayAct() && detail.mine;
  const ask = useAskStudy();
  const budget = (detail.config["budget"] ?? {}) as Record<string, unknown>;
  const parallel = Number(detail.config["parallel"] ?? 1);
  return (
    <div className={css.wideAndSide}>
      <Card title="study.yaml"><CodeText text={yaml(told(detail.config))} /></Card>
      {mayAct && (
        <Card title="Extend">
          <form
            className={css.form}
            onSubmit={submitted((form) => {
              const trials = Number(form.get("trials"));
              const time = String(form.get("time") ?? "").trim();
              const next = { ...told(budget), ...(trials > 0 ? { trials } : {}), ...(time ? { time } : {}) };
              void ask("PATCH", `/studies/${id}`, { budget: next, parallel: Number(form.get("parallel")) }, "changed; it holds from the next turn");
            })}
          >
            <Field label="Trials in all"><input type="number" name="trials" min={1} defaultValue={String(budget["trials"] ?? "")} /></Field>
            <Field label="Time in all"><input type="text" name="time" placeholder="2h" defaultValue={String(budget["time"] ?? "")} /></Field>
            <Field label="Trials at once"><input type="number" name="parallel" min={1} defaultValue={parallel} /></Field>
            <Button type="submit" kind="primary">Change</Button>
            <p className={layout.note}>The space and the metric stay: what was compared would not be comparable any more. Clone the study for another space.</p>
          </form>
        </Card>
      )}
    </div>
  );
}
