/** One's own account: the password, the colours of the pages, the way out. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { send } from "../../api/client";
import { useSession } from "../../api/queries";
import { Button, Field, Segments, tell, tellError, Wrong } from "../../parts/controls";
import { Card, Facts } from "../../parts/layout";
import { theme, useTheme, type Theme } from "../../theme";
import { submitted } from "./parts";
import css from "./settings.module.css";

export function Account() {
  const session = useSession();
  const client = useQueryClient();
  const [, go] = useLocation();
  const [wrong, setWrong] = useState<unknown>(null);
  const shown = useTheme();
  const user = session.data?.user;
  const change = submitted((form, element) => {
    const old = String(form.get("old"));
    setWrong(null);
    send("PATCH", `/users/${user!.id}`, { password: form.get("new"), old_password: old || null }).then(
      () => {
        element.reset();
        tell("the password is changed");
      },
      setWrong,
    );
  });
  async function logOut(): Promise<void> {
    try {
      await send("DELETE", "/session");
      client.clear();
      go("/login");
    } catch (error) {
      tellError(error);
    }
  }
  if (!user) return null;
  return (
    <div className={css.stack}>
      <Card title="You" extra={<Button small icon="out" onClick={() => void logOut()}>Log out</Button>}>
        <Facts facts={[["Name", user.name], ["Role", user.role], ["Service", `Weft ${session.data!.version}`]]} />
      </Card>
      <Card title="Password">
        <form className={css.form} onSubmit={change}>
          <Field label="Password now, if there is one"><input type="password" name="old" autoComplete="current-password" /></Field>
          <Field label="New password, 8 characters at least"><input type="password" name="new" required minLength={8} autoComplete="new-password" /></Field>
          <Button kind="primary" type="submit">Change</Button>
        </form>
        {wrong ? <Wrong error={wrong} /> : null}
      </Card>
      <Card title="Colours">
        <Segments label="Colours" value={shown} options={[["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]] as const} onChange={(value) => theme.set(value as Theme)} />
      </Card>
    </div>
  );
}
