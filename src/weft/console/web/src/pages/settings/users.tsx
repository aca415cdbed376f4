/** Users and their roles; a link logs somebody in once, so that no password has to be told. */
import { useState } from "react";
import { useSession } from "../../api/queries";
import type { LinkAnswer, UsersAnswer, UserView } from "../../api/types";
import { Button, Field } from "../../parts/controls";
import { Card } from "../../parts/layout";
import { ago, percent } from "../../text/format";
import { limitsOf, QuotaDialog } from "./quota";
import { Listed, Once, submitted, Sure, useSettings } from "./parts";
import css from "./settings.module.css";

const ROLES = ["viewer", "member", "admin"] as const;

export function Users() {
  const { list, change } = useSettings<UsersAnswer>("/users");
  const [link, setLink] = useState<{ name: string; url: string } | null>(null);
  const [limited, setLimited] = useState<UserView | null>(null);
  const self = useSession().data?.user.id;
  const users = list.data?.users ?? [];
  const makeLink = async (user: UserView): Promise<void> => {
    const answer = await change<LinkAnswer>("POST", `/users/${user.id}/link`, undefined, "the link is made");
    if (answer) setLink({ name: user.name, url: answer.url });
  };
  const add = submitted((form, element) => {
    void change<UserView>("POST", "/users", { name: form.get("name"), role: form.get("role"), password: null }, "the user is made").then((user) => {
      if (!user) return;
      element.reset();
      void makeLink(user);
    });
  });
  return (
    <div className={css.stack}>
      <Card title="Add a user">
        <form className={css.form} onSubmit={add}>
          <Field label="Name"><input type="text" name="name" required maxLength={100} /></Field>
          <Field label="Role">
            <select name="role" defaultValue="member">
              <option value="viewer">viewer: sees</option>
              <option value="member">member: submits jobs</option>
              <option value="admin">admin: may do all</option>
            </select>
          </Field>
          <Button kind="primary" type="submit">Add</Button>
        </form>
      </Card>
      <Card title="Users">
        <Listed state={list} empty={false} head={["Name", "Role", "Since", "Logs in by", "Quota", "Used lately"]}>
          {users.map((user) => (
            <tr key={user.id} className={user.disabled ? css.off : undefined}>
              <td>{user.name}{user.id === self ? " (you)" : ""}{user.disabled ? ", disabled" : ""}</td>
              <td>
                <select aria-label={`role of ${user.name}`} value={user.role} disabled={user.id === self} onChange={(event) => void change("PATCH", `/users/${user.id}`, { role: event.target.value }, `${user.name}: ${event.target.value}`)}>
                  {ROLES.map((role) => <option key={role}>{role}</option>)}
                </select>
              </td>
              <td>{ago(user.created_ms)}</td>
              <td>{user.has_password ? "password, link" : "link"}</td>
              <td>
                <Button small kind="quiet" aria-label={`${limitsOf(user.quota)}: quota of ${user.name}`} onClick={() => setLimited(user)}>{limitsOf(user.quota)}</Button>
              </td>
              <td>{percent(user.usage ?? 0)}</td>
              <td className={css.end}>
                <Button small icon="link" aria-label={`make a link for ${user.name}`} onClick={() => void makeLink(user)}>Link</Button>
                {user.id !== self && (
                  <>
                    <Button small aria-label={`${user.disabled ? "enable" : "disable"} ${user.name}`} onClick={() => void change("PATCH", `/users/${user.id}`, { disabled: !user.disabled }, user.disabled ? "enabled" : "disabled")}>{user.disabled ? "Enable" : "Disable"}</Button>
                    <Sure word="Remove" label={`remove ${user.name}`} onSure={() => void change("DELETE", `/users/${user.id}`, undefined, `${user.name} is removed`)} />
                  </>
                )}
              </td>
            </tr>
          ))}
        </Listed>
      </Card>
      {limited && (
        <QuotaDialog
          user={limited}
          onClose={() => setLimited(null)}
          onSet={(quota) => void change("PUT", `/users/${limited.id}/quota`, quota, `${limited.name}: ${limitsOf(quota)}`).then((done) => done && setLimited(null))}
        />
      )}
      {link && <Once title={`Link for ${link.name}`} text="It logs in once. Send it to them alone." value={link.url} onClose={() => setLink(null)} />}
    </div>
  );
}
