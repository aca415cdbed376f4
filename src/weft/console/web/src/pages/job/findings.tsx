/** What the rules of advice found in a job: what they saw, by which figures, and what was done. */
import type { JobDetail } from "../../api/types";
import { Empty, Facts, layout } from "../../parts/layout";
import { SEVERITY_TONES, toneClass } from "../../parts/state";
import { ago, moment, number } from "../../text/format";
import css from "./job.module.css";

export default function FindingsTab({ job }: { job: JobDetail }) {
  if (job.findings.length === 0)
    return <Empty title="Nothing to say" text="Rules look at losses, gradients, loaders, accelerators and stragglers. They tell by default; a specification may let them act." commands={["advice: {not-a-number: {act: true}}"]} />;
  return (
    <div className={css.stack}>
      {job.findings.map((finding) => {
        const tone = SEVERITY_TONES[finding.severity] ?? "grey";
        return (
          <section key={finding.rule} className={css.finding} style={{ borderLeftColor: `var(--${tone})` }} aria-label={finding.rule}>
            <h2>
              {finding.rule} <span className={toneClass(tone)}>{finding.severity}</span>
            </h2>
            <p>{finding.text}</p>
            <Facts
              facts={Object.entries(finding.evidence).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "string" ? value : number(value)] as const)}
            />
            <p className={layout.note} title={moment(finding.first_ms)}>
              first seen {ago(finding.first_ms)}, last {ago(finding.last_ms)}
              {finding.action ? `; done: ${finding.action}` : ""}
            </p>
          </section>
        );
      })}
    </div>
  );
}
