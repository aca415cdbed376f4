/** Controls that all pages share: buttons, chips, segments, tabs, dialogs, messages, commands to copy. */
import { useEffect, useRef, useState, useSyncExternalStore, type ButtonHTMLAttributes, type ReactNode } from "react";
import { Link } from "wouter";
import css from "./controls.module.css";
import { Icon, type IconName } from "./icons";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "plain" | "primary" | "danger" | "quiet";
  small?: boolean;
  icon?: IconName;
}

export function Button({ kind = "plain", small, icon, children, className, ...rest }: ButtonProps) {
  const look = [css.button, kind !== "plain" && css[kind], small && css.small, !children && css.bare, className];
  return (
    <button type="button" className={look.filter(Boolean).join(" ")} {...rest}>
      {icon && <Icon name={icon} size={small ? 13 : 15} />}
      {children}
    </button>
  );
}

export function ButtonLink({ to, icon, kind = "plain", children }: { to: string; icon?: IconName; kind?: "plain" | "primary"; children: ReactNode }) {
  return (
    <Link href={to} className={`${css.button} ${kind === "primary" ? css.primary : ""}`}>
      {icon && <Icon name={icon} size={15} />}
      {children}
    </Link>
  );
}

export function Chip({ on, onClick, children, label }: { on: boolean; onClick: () => void; children: ReactNode; label?: string }) {
  return (
    <button type="button" className={css.chip} aria-pressed={on} onClick={onClick} aria-label={label}>
      {children}
    </button>
  );
}

export function Chips({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div role="group" aria-label={label} className={css.chips}>
      {children}
    </div>
  );
}

/** A choice of one among few. */
export function Segments<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div role="group" aria-label={label} className={css.segments}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={key === value} onClick={() => onChange(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** Tabs are links: the address says which is open. Where they do not all fit, the open one is scrolled to. */
export function Tabs({ label, tabs, open }: { label: string; tabs: { key: string; text: string; to: string; count?: number | undefined }[]; open: string }) {
  const strip = useRef<HTMLElement>(null);
  useEffect(() => {
    const nav = strip.current;
    const link = nav?.querySelector<HTMLElement>("[aria-current]");
    if (!nav || !link) return;
    const [outer, inner] = [nav.getBoundingClientRect(), link.getBoundingClientRect()];
    nav.scrollLeft += Math.min(0, inner.left - outer.left) || Math.max(0, inner.right - outer.right); // the page itself stays
  }, [open, tabs.length]);
  return (
    <nav aria-label={label} className={css.tabs} ref={strip}>
      {tabs.map((tab) => (
        <Link key={tab.key} href={tab.to} aria-current={tab.key === open ? "page" : undefined} replace>
          {tab.text}
          {tab.count ? <small>{tab.count}</small> : null}
        </Link>
      ))}
    </nav>
  );
}

export function Dialog({ title, onClose, children, foot, wide = false }: { title: string; onClose: () => void; children: ReactNode; foot?: ReactNode; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current;
    if (dialog && !dialog.open) {
      dialog.showModal();
      dialog.scrollTop = 0; // the focus may be on a button at its end
    }
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={box}
      className={css.dialog}
      aria-label={title}
      data-wide={wide || undefined}
      onClose={onClose}
      onClick={(event) => event.target === box.current && onClose()}
    >
      <h2>{title}</h2>
      {children}
      <div className={css.dialogFoot}>{foot ?? <Button onClick={onClose}>Close</Button>}</div>
    </dialog>
  );
}

interface Told {
  id: number;
  text: string;
  bad: boolean;
}
let told: Told[] = [];
let nextId = 1;
const watchers = new Set<() => void>();

function setTold(next: Told[]): void {
  told = next;
  watchers.forEach((watch) => watch());
}

/** Shows a message for some seconds. */
export function tell(text: string, bad: boolean = false): void {
  const id = nextId++;
  setTold([...told.slice(-3), { id, text, bad }]);
  setTimeout(() => setTold(told.filter((one) => one.id !== id)), bad ? 9000 : 4000);
}

export function tellError(error: unknown): void {
  tell(error instanceof Error ? error.message : String(error), true);
}

export function Messages() {
  const shown = useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => told,
  );
  return (
    <div className={css.toasts} role="status" aria-live="polite">
      {shown.map((one) => (
        <div key={one.id} className={`${css.toast} ${one.bad ? css.toastBad : ""}`}>
          {one.text}
        </div>
      ))}
    </div>
  );
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    tell("copied");
  } catch {
    tell("the browser does not let pages copy here; select the text", true);
  }
}

/** A command of the terminal that can be copied. */
export function Command({ text }: { text: string }) {
  return (
    <div className={css.command}>
      <code>{text}</code>
      <Button kind="quiet" small icon="copy" aria-label={`copy: ${text}`} onClick={() => void copyText(text)} />
    </div>
  );
}

export function Field({ label, children }: { label: string; children: ReactNode }) {
  return (
    <label className={css.field}>
      <span>{label}</span>
      {children}
    </label>
  );
}

export function Wrong({ error }: { error: unknown }) {
  const text = error instanceof Error ? error.message : String(error);
  return (
    <p role="alert" className={css.wrong}>
      {text}
    </p>
  );
}

/** Returns the time, told again every so often, for ages that grow. */
export function useNow(every_ms: number = 5000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return now;
}
