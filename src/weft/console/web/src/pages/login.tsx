/** The log-in page: by the link that `weft up` prints, or by name and password. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type FormEvent } from "react";
import { useLocation, useSearchParams } from "wouter";
import { keepSession, send } from "../api/client";
import type { Login, SessionAnswer } from "../api/types";
import { Button, Command, Field, Wrong } from "../parts/controls";
import { Mark } from "../parts/icons";
import css from "./login.module.css";

/** Returns the token of a log-in link: it is in the fragment, which never leaves the browser. */
export function linkToken(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("link");
}

/** Returns where to go after the log-in: a path of this console, never another site. */
export function safeNext(next: string | null): string {
  return next && /^\/(?![/\\])/.test(next) ? next : "/";
}

export function LoginPage() {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [params] = useSearchParams();
  const [wrong, setWrong] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const tried = useRef(false);

  async function logIn(login: Login): Promise<void> {
    setBusy(true);
    setWrong(null);
    try {
      const session = keepSession(await send<SessionAnswer>("POST", "/session", login));
      // The answer to "who am I" that was asked before the log-in must not come after it.
      await client.cancelQueries({ queryKey: ["session"] });
      client.setQueryData(["session"], session);
      go(safeNext(params.get("next")), { replace: true });
    } catch (error) {
      setWrong(error);
    } finally {
      setBusy(false);
    }
  }

  useEffect(() => {
    document.title = "Log in · Weft";
    const link = linkToken(window.location.hash);
    if (!link || tried.current) return;
    tried.current = true;
    history.replaceState(null, "", window.location.pathname + window.location.search);
    void logIn({ link });
  });

  function submit(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    void logIn({ name: String(form.get("name")), password: String(form.get("password")) });
  }

  return (
    <main className={css.login}>
      <form className={css.box} onSubmit={submit}>
        <div className={css.brand}>
          <Mark size={28} />
          <h1>Log in to Weft</h1>
        </div>
        {wrong !== null && <Wrong error={wrong} />}
        <Field label="Name">
          <input type="text" name="name" autoComplete="username" required autoFocus />
        </Field>
        <Field label="Password">
          <input type="password" name="password" autoComplete="current-password" required />
        </Field>
        <Button kind="primary" type="submit" disabled={busy} style={{ justifyContent: "center" }}>
          {busy ? "Logging in" : "Log in"}
        </Button>
        <div className={css.hint}>
          <p>No password? On the machine that runs the service, this prints a link that logs in:</p>
        </div>
        <Command text="weft user link NAME" />
      </form>
    </main>
  );
}
