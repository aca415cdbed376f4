/** Secrets that jobs may have in their environment; their values are never shown again. */
import type { SecretsAnswer } from "../../api/types";
import { Button, Field } from "../../parts/controls";
import { Card, layout } from "../../parts/layout";
import { ago } from "../../text/format";
import { Listed, submitted, Sure, useSettings } from "./parts";
import css from "./settings.module.css";

export function Secrets() {
  const { list, change } = useSettings<SecretsAnswer>("/secrets");
  const secrets = list.data?.secrets ?? [];
  const add = submitted((form, element) => {
    const name = String(form.get("name"));
    void change("POST", "/secrets", { name, value: form.get("value") }, `${name} is kept`).then((answer) => answer && element.reset());
  });
  return (
    <div className={css.stack}>
      <Card title="Keep a secret">
        <form className={css.form} onSubmit={add}>
          <Field label="Name of the variable"><input type="text" name="name" required pattern="[A-Za-z_][A-Za-z0-9_]*" placeholder="HF_TOKEN" /></Field>
          <Field label="Value"><input type="password" name="value" required autoComplete="off" /></Field>
          <Button kind="primary" type="submit">Keep</Button>
        </form>
        <p className={layout.note}>A job has it in its environment when its specification names it: <code>secrets: [HF_TOKEN]</code>. A new value takes the place of the old one.</p>
      </Card>
      <Card title="Secrets">
        <Listed state={list} empty={secrets.length === 0 && "There is none."} head={["Name", "Kept"]}>
          {secrets.map((secret) => (
            <tr key={secret.name}>
              <td><code>{secret.name}</code></td>
              <td>{ago(secret.created_ms)}</td>
              <td className={css.end}><Sure word="Forget" label={`forget ${secret.name}`} onSure={() => void change("DELETE", `/secrets/${secret.name}`, undefined, `${secret.name} is forgotten`)} /></td>
            </tr>
          ))}
        </Listed>
      </Card>
    </div>
  );
}
