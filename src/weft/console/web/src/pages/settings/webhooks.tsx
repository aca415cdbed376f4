/** Webhooks: addresses that are told of events, with a key that signs each message. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get } from "../../api/client";
import type { DeliveriesAnswer, NewWebhookAnswer, WebhooksAnswer, WebhookView } from "../../api/types";
import { Button, Command, Field } from "../../parts/controls";
import { Card } from "../../parts/layout";
import { toneClass } from "../../parts/state";
import { ago, until } from "../../text/format";
import { Listed, Once, submitted, Sure, useSettings } from "./parts";
import css from "./settings.module.css";

const EVENTS = ["started", "completed", "failed", "stopped", "paused", "advice", "retried"];

export function Webhooks() {
  const { list, change } = useSettings<WebhooksAnswer>("/webhooks");
  const [made, setMade] = useState<NewWebhookAnswer | null>(null);
  const [open, setOpen] = useState<number | null>(null);
  const hooks = list.data?.webhooks ?? [];
  const add = submitted((form, element) => {
    const body = { url: form.get("url"), events: form.getAll("events"), project: form.get("project") || null };
    void change<NewWebhookAnswer>("POST", "/webhooks", body, "the webhook is made").then((answer) => {
      if (!answer) return;
      setMade(answer);
      element.reset();
    });
  });
  return (
    <div className={css.stack}>
      <Card title="Add a webhook">
        <form className={css.form} onSubmit={add}>
          <Field label="Address"><input type="url" name="url" required placeholder="https://chat.example.org/hooks/7" /></Field>
          <Field label="Project, or all"><input type="text" name="project" /></Field>
          <fieldset className={css.checks}>
            <legend>Tell of</legend>
            {EVENTS.map((event) => (
              <label key={event}><input type="checkbox" name="events" value={event} defaultChecked={event === "failed" || event === "completed"} /> {event}</label>
            ))}
          </fieldset>
          <Button kind="primary" type="submit">Add</Button>
        </form>
      </Card>
      <Card title="Webhooks">
        <Listed state={list} empty={hooks.length === 0 && "There is none."} head={["Address", "Told of", "Project", "Added", "State"]}>
          {hooks.map((hook) => (
            <tr key={hook.id}>
              <td>{hook.url}</td>
              <td>{hook.events.join(", ")}</td>
              <td>{hook.project ?? "all"}</td>
              <td>{ago(hook.created_ms)}</td>
              <td>{hook.active ? "on" : "off"}</td>
              <td className={css.end}>
                <Button small aria-label={`messages to ${hook.url}`} aria-expanded={open === hook.id} onClick={() => setOpen(open === hook.id ? null : hook.id)}>Messages</Button>
                <Button small aria-label={`test ${hook.url}`} onClick={() => void change("POST", `/webhooks/${hook.id}/test`, undefined, "a message is on its way")}>Test</Button>
                <Button small aria-label={`turn ${hook.active ? "off" : "on"} ${hook.url}`} onClick={() => void change("PATCH", `/webhooks/${hook.id}`, { active: !hook.active }, hook.active ? "turned off" : "turned on")}>{hook.active ? "Turn off" : "Turn on"}</Button>
                <Sure word="Remove" label={`remove ${hook.url}`} onSure={() => void change("DELETE", `/webhooks/${hook.id}`, undefined, "removed")} />
              </td>
            </tr>
          ))}
        </Listed>
      </Card>
      {hooks.filter((hook) => hook.id === open).map((hook) => <Deliveries key={hook.id} hook={hook} />)}
      {list.data && (
        <Card title="Addresses in specifications">
          <div className={css.once}>
            <p>What jobs send by the field <code>notify</code> is signed with this key of yours:</p>
            <Command text={list.data.notify_key} />
          </div>
        </Card>
      )}
      {made && <Once title="Key of the webhook" text="It signs what is sent to the address. Keep it now: it is shown this once." value={made.key} onClose={() => setMade(null)} />}
    </div>
  );
}

const TONES = { delivered: "green", waiting: "blue", failed: "orange" } as const;

/** The newest messages to a webhook: what came of each, and when the next try is. */
function Deliveries({ hook }: { hook: WebhookView }) {
  const list = useQuery({
    queryKey: ["settings", "deliveries", hook.id],
    queryFn: () => get<DeliveriesAnswer>(`/webhooks/${hook.id}/deliveries`),
    refetchInterval: 3000,
  });
  const deliveries = list.data?.deliveries ?? [];
  const next = (one: (typeof deliveries)[number]): string =>
    one.state === "waiting" && one.tries > 0 && one.next_ms !== null ? `next try ${until(one.next_ms, Date.now())}` : "";
  return (
    <Card title={`Messages to ${hook.url}`}>
      <Listed state={list} empty={deliveries.length === 0 && "None was sent yet; Test sends one."} head={["Event", "Job", "State", "Tries", "Answer", "Sent", "About"]}>
        {deliveries.map((one) => (
          <tr key={one.id}>
            <td>{one.event}</td>
            <td>{one.job === null ? "–" : <Link href={`/jobs/${one.job}`}>{one.job}</Link>}</td>
            <td className={toneClass(TONES[one.state])}>{one.state}</td>
            <td>{one.tries}</td>
            <td>{one.status ?? "–"}</td>
            <td>{ago(one.created_ms)}</td>
            <td>{[one.message, next(one)].filter(Boolean).join("; ")}</td>
            <td />
          </tr>
        ))}
      </Listed>
    </Card>
  );
}
