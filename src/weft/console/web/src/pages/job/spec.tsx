/** The specification of a job, its parameters and the environment it ran in. */
import type { ReactNode } from "react";
import type { JobDetail } from "../../api/types";
import { CodeText } from "../../parts/code";
import { Button, copyText } from "../../parts/controls";
import { Card, layout } from "../../parts/layout";
import { yaml } from "../../text/yaml";
import css from "./job.module.css";

function Pairs({ pairs }: { pairs: Record<string, string> }): ReactNode {
  return (
    <table className={layout.table}>
      <tbody>
        {Object.entries(pairs).map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export default function SpecTab({ job }: { job: JobDetail }) {
  const text = yaml(job.spec);
  return (
    <div className={css.stack}>
      <Card title="Specification" extra={<Button small icon="copy" onClick={() => void copyText(text)}>Copy</Button>}>
        <CodeText text={text} />
      </Card>
      {Object.keys(job.params).length > 0 && <Card title="Parameters"><Pairs pairs={job.params} /></Card>}
      {Object.keys(job.environment).length > 0 && <Card title="Environment"><Pairs pairs={job.environment} /></Card>}
    </div>
  );
}
