/** Parts of the settings: lists that are read, added to and taken from, and values that are shown once. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";
import { get, send } from "../../api/client";
import { Button, Command, Dialog, tell, tellError, Wrong } from "../../parts/controls";
import { layout, Skeleton } from "../../parts/layout";
import css from "./settings.module.css";

/** Returns a list of the settings and what changes it; every change reads it again. */
export function useSettings<T>(path: string) {
  const client = useQueryClient();
  const list = useQuery({ queryKey: ["settings", path], queryFn: () => get<T>(path) });
  async function change<A>(method: "POST" | "PUT" | "PATCH" | "DELETE", where: string, body: unknown, done: string): Promise<A | null> {
    try {
      const answer = await send<A>(method, where, body);
      tell(done);
      return answer ?? ({} as A);
    } catch (error) {
      tellError(error);
      return null;
    } finally {
      void client.invalidateQueries({ queryKey: ["settings"] });
    }
  }
  return { list, change };
}

export function Listed({ state, empty, head, children }: { state: { error: unknown; isPending: boolean }; empty: ReactNode | false; head: string[]; children: ReactNode }) {
  if (state.error) return <Wrong error={state.error} />;
  if (state.isPending) return <Skeleton />;
  if (empty) return <p className={layout.note}>{empty}</p>;
  return (
    <div className={layout.scroll} tabIndex={0} role="group" aria-label={`List by ${head[0]?.toLowerCase() ?? "name"}`}>
      <table className={layout.table}>
        <thead>
          <tr>
            {head.map((text) => (
              <th key={text}>{text}</th>
            ))}
            <th>
              <span className="unseen">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export function submitted(then: (form: FormData, element: HTMLFormElement) => void) {
  return (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault();
    then(new FormData(event.currentTarget), event.currentTarget);
  };
}

/** Shows a value that the service keeps only as a hash. */
export function Once({ title, text, value, onClose }: { title: string; text: string; value: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose} foot={<Button kind="primary" onClick={onClose}>I have kept it</Button>}>
      <div className={css.once}>
        <p>{text}</p>
        <Command text={value} />
      </div>
    </Dialog>
  );
}

/** A button that asks once more before it does something for good. */
export function Sure({ word, label, onSure }: { word: string; label: string; onSure: () => void }) {
  const [asked, setAsked] = useState(false);
  return (
    <Button small kind="danger" aria-label={asked ? `${label}: sure?` : label} onClick={() => (asked ? onSure() : setAsked(true))} onBlur={() => setAsked(false)}>
      {asked ? "Sure?" : word}
    </Button>
  );
}
