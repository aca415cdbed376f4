/** The frame of a page and its cards; pages that are empty teach the command that fills them. */
import { useEffect, type ReactNode } from "react";
import { Command } from "./controls";
import css from "./layout.module.css";

interface PageProps {
  title: ReactNode;
  name: string; // of the window
  actions?: ReactNode;
  fill?: boolean; // as high as the window: what is inside scrolls
  children: ReactNode;
}

export function Page({ title, name, actions, fill, children }: PageProps) {
  useEffect(() => {
    document.title = `${name} · Weft`;
  }, [name]);
  return (
    <div className={`${css.page} ${fill ? css.fill : ""}`}>
      <header className={css.head}>
        <h1>{title}</h1>
        {actions && <div className={css.actions}>{actions}</div>}
      </header>
      {children}
    </div>
  );
}

export function Card({ title, extra, children, label }: { title?: ReactNode; extra?: ReactNode; children: ReactNode; label?: string }) {
  return (
    <section className={css.card} aria-label={label ?? (typeof title === "string" ? title : undefined)}>
      {title && (
        <div className={css.cardHead}>
          <h2>{title}</h2>
          {extra && <div>{extra}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

export function Empty({ title, text, commands = [], children }: { title: string; text: string; commands?: string[]; children?: ReactNode }) {
  return (
    <div className={css.empty}>
      <svg className={css.emptyLoom} width="72" height="40" viewBox="0 0 72 40" aria-hidden="true">
        <g fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round">
          {[6, 16, 26, 36, 46, 56, 66].map((x) => (
            <path key={x} d={`M${x} 3v34`} />
          ))}
          <path d="M2 12h17M33 12h7M53 12h17" stroke="var(--line-2)" />
        </g>
      </svg>
      <h2>{title}</h2>
      <p>{text}</p>
      {commands.map((command) => (
        <Command key={command} text={command} />
      ))}
      {children}
    </div>
  );
}

export function Facts({ facts }: { facts: (readonly [string, ReactNode] | null | false)[] }) {
  return (
    <dl className={css.facts}>
      {facts.map(
        (fact) =>
          fact && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

export function Bar({ share, label, tone = "var(--blue)" }: { share: number; label: string; tone?: string }) {
  const width = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`;
  return (
    <div className={css.bar} role="img" aria-label={label}>
      <i style={{ width, background: tone }} />
    </div>
  );
}

export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div aria-busy="true" aria-label="loading" role="status" style={{ display: "grid", gap: 10 }}>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className={css.skeleton} style={{ width: `${90 - (index * 23) % 50}%` }} />
      ))}
    </div>
  );
}

export { css as layout };
