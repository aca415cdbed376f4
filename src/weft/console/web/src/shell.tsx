/** The frame around all pages: where one can go, who one is, whether the stream lives, and the keys. */
import { useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { send } from "./api/client";
import { useSession } from "./api/queries";
import { useStream, useStreamState, type StreamState } from "./api/stream";
import { all, useKeys, type Shortcut } from "./keys/keys";
import { Button, Dialog, Messages, tellError } from "./parts/controls";
import { Icon, Mark, type IconName } from "./parts/icons";
import css from "./shell.module.css";
import { nextTheme, theme, useTheme } from "./theme";

const PLACES: { to: string; text: string; icon: IconName; keys: string }[] = [
  { to: "/", text: "Overview", icon: "overview", keys: "g o" },
  { to: "/jobs", text: "Jobs", icon: "jobs", keys: "g j" },
  { to: "/studies", text: "Studies", icon: "studies", keys: "g t" },
  { to: "/hosts", text: "Hosts", icon: "hosts", keys: "g h" },
  { to: "/compare", text: "Compare", icon: "compare", keys: "g c" },
  { to: "/tables", text: "Tables", icon: "table", keys: "g a" },
  { to: "/vision", text: "Vision", icon: "picture", keys: "g v" },
  { to: "/datasets", text: "Data sets", icon: "folder", keys: "g d" },
  { to: "/models", text: "Models", icon: "file", keys: "g m" },
  { to: "/deployments", text: "Deployments", icon: "out", keys: "g e" },
  { to: "/settings", text: "Settings", icon: "settings", keys: "g s" },
];

const STREAM_WORDS: Record<StreamState, string> = {
  off: "not live",
  connecting: "connecting",
  live: "live",
  down: "no connection",
};

function here(location: string, to: string): boolean {
  return to === "/" ? location === "/" : location === to || location.startsWith(`${to}/`);
}

export function Shell({ children }: { children: ReactNode }) {
  const [location, go] = useLocation();
  const [help, setHelp] = useState(false);
  const session = useSession();
  const client = useQueryClient();
  const stream = useStreamState();
  const shown = useTheme();
  // Every page is live, those that ask for nothing in particular too.
  useStream(["jobs"], () => undefined);
  useKeys([
    ...PLACES.map(({ keys, text, to }) => ({ keys, label: text, run: () => go(to) })),
    { keys: "n", label: "New job", run: () => go("/new") },
    { keys: "/", label: "Search", run: focusSearch },
    { keys: "t", label: "Light, dark or as the system", run: () => theme.set(nextTheme(theme.get())) },
    { keys: "?", label: "This help", run: () => setHelp(true) },
  ]);

  async function logOut(): Promise<void> {
    try {
      await send("DELETE", "/session");
      client.clear();
      go("/login");
    } catch (error) {
      tellError(error);
    }
  }

  return (
    <div className={css.shell}>
      <a className={css.skip} href="#main">
        Skip to the page
      </a>
      <header className={css.side}>
        <Link href="/" className={css.brand} aria-label="Weft, overview">
          <Mark size={22} />
          <span>Weft</span>
        </Link>
        <nav aria-label="Pages" className={css.links}>
          {PLACES.map(({ to, text, icon }) => (
            <Link key={to} href={to} aria-current={here(location, to) ? "page" : undefined} title={text}>
              <Icon name={icon} />
              <span>{text}</span>
            </Link>
          ))}
        </nav>
        <div className={css.foot}>
          <div className={css.stream} role="status" title={STREAM_WORDS[stream]}>
            <i className={css.dot} data-state={stream} data-testid="stream" />
            <span className={css.word}>{STREAM_WORDS[stream]}</span>
          </div>
          <div className={`${css.footRow}`}>
            <span className={css.word}>{session.data?.user.name}</span>
            <Button
              className={css.optional}
              kind="quiet"
              small
              icon={shown === "light" ? "sun" : shown === "dark" ? "moon" : "auto"}
              aria-label={`Theme: ${shown}`}
              title={`Theme: ${shown} (t)`}
              onClick={() => theme.set(nextTheme(shown))}
            />
            <Button className={css.optional} kind="quiet" small icon="keyboard" aria-label="Keys" title="Keys (?)" onClick={() => setHelp(true)} />
            <Button className={css.optional} kind="quiet" small icon="out" aria-label="Log out" title="Log out" onClick={() => void logOut()} />
          </div>
        </div>
      </header>
      <main id="main" className={css.main} tabIndex={-1}>
        {stream === "down" && (
          <div className={css.offline} role="alert">
            The service does not answer. What you see may be old; it is tried again by itself.
          </div>
        )}
        {children}
      </main>
      {help && <KeyHelp shortcuts={all()} onClose={() => setHelp(false)} />}
      <Messages />
    </div>
  );
}

function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>("input[type=search]");
  field?.focus();
  field?.select();
}

function KeyHelp({ shortcuts, onClose }: { shortcuts: Shortcut[]; onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className={css.keys}>
        {shortcuts.map((shortcut) => (
          <div key={shortcut.keys} style={{ display: "contents" }}>
            <dt>
              {shortcut.keys.split(" ").map((key, index) => (
                <span key={index}>
                  {index > 0 && " "}
                  <kbd>{key}</kbd>
                </span>
              ))}
            </dt>
            <dd>{shortcut.label}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
