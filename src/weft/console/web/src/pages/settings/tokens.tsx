/** Tokens by which programs speak to the service; the text of one is shown when it is made, and never again. */
import { useState } from "react";
import type { NewTokenAnswer, TokensAnswer } from "../../api/types";
import { Button, Field } from "../../parts/controls";
import { Card } from "../../parts/layout";
import { ago, moment } from "../../text/format";
import { Listed, Once, submitted, Sure, useSettings } from "./parts";
import css from "./settings.module.css";

export function Tokens() {
  const { list, change } = useSettings<TokensAnswer>("/tokens");
  const [made, setMade] = useState<NewTokenAnswer | null>(null);
  const tokens = list.data?.tokens ?? [];
  const add = submitted((form, element) => {
    const days = String(form.get("days"));
    const body = { name: form.get("name"), scopes: form.getAll("scopes"), days: days === "never" ? null : Number(days) };
    void change<NewTokenAnswer>("POST", "/tokens", body, "the token is made").then((answer) => {
      if (!answer) return;
      setMade(answer);
      element.reset();
    });
  });
  return (
    <div className={css.stack}>
      <Card title="Make a token">
        <form className={css.form} onSubmit={add}>
          <Field label="Name"><input type="text" name="name" required maxLength={100} placeholder="laptop" /></Field>
          <Field label="Expires">
            <select name="days" defaultValue="90">
              <option value="7">in a week</option>
              <option value="90">in 90 days</option>
              <option value="365">in a year</option>
              <option value="never">never</option>
            </select>
          </Field>
          <fieldset className={css.checks}>
            <legend>It may</legend>
            <label><input type="checkbox" name="scopes" value="read" defaultChecked /> read</label>
            <label><input type="checkbox" name="scopes" value="write" defaultChecked /> write</label>
            <label><input type="checkbox" name="scopes" value="admin" /> administer</label>
          </fieldset>
          <Button kind="primary" type="submit">Make</Button>
        </form>
      </Card>
      <Card title="Tokens">
        <Listed state={list} empty={tokens.length === 0 && "There is none. Programs and other machines log in with one."} head={["Name", "May", "Made", "Used", "Expires"]}>
          {tokens.map((token) => (
            <tr key={token.id}>
              <td>{token.name}</td>
              <td>{token.scopes.join(", ")}</td>
              <td title={moment(token.created_ms)}>{ago(token.created_ms)}</td>
              <td>{token.used_ms ? ago(token.used_ms) : "never"}</td>
              <td>{token.expires_ms ? moment(token.expires_ms).slice(0, 10) : "never"}</td>
              <td className={css.end}><Sure word="Revoke" label={`revoke ${token.name}`} onSure={() => void change("DELETE", `/tokens/${token.id}`, undefined, `${token.name} is revoked`)} /></td>
            </tr>
          ))}
        </Listed>
      </Card>
      {made && <Once title={`Token ${made.token.name}`} text="Keep it now: it is shown this once. Programs send it as Authorization: Bearer." value={made.text} onClose={() => setMade(null)} />}
    </div>
  );
}
