/** Logs of a job: live, by rank, searched by the server; the first error is one press away. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { get, url } from "../../api/client";
import type { JobDetail, LogLineView, LogsAnswer } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, Chip, tell, tellError, Wrong } from "../../parts/controls";
import { Empty } from "../../parts/layout";
import { useParam, useSetParams } from "../../text/address";
import { count, plural } from "../../text/format";
import { expression, FIRST_ERROR, pieces, plainText, rankName, severity } from "../../text/logs";
import css from "./logs.module.css";
import job_css from "./job.module.css";
import { useLog } from "./useLog";

export default function LogsTab({ job }: { job: JobDetail }) {
  const [rank] = useParam("rank");
  const [attempt] = useParam("attempt");
  const [grep] = useParam("grep");
  const [from] = useParam("from", "end");
  const [wrap, setWrap] = useParam("wrap");
  const [at] = useParam("at");
  const [error, setError] = useParam("error");
  const setParams = useSetParams();
  const [text, setText] = useState(grep);
  const [follow, setFollow] = useState(from === "end" && !at && !error);
  const log = useLog({ job: job.id, rank, attempt, grep, from: from as "end" | "start", at }, follow);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => setText(grep), [grep]);
  useEffect(() => {
    if (text === grep) return undefined;
    const timer = setTimeout(() => setParams({ grep: text, at: "" }), 250);
    return () => clearTimeout(timer);
  }, [text, grep, setParams]);

  const firstError = useCallback(async () => {
    try {
      const answer = await get<LogsAnswer>(`/jobs/${job.id}/logs`, { grep: FIRST_ERROR, limit: 1, attempt, rank });
      if (answer.lines.length === 0) {
        setParams({ error: "" });
        tell("no line looks like an error");
        return;
      }
      setFollow(false);
      setParams({ error: "", grep: "", from: "", at: answer.next });
    } catch (wrong) {
      tellError(wrong);
    }
  }, [job.id, attempt, rank, setParams]);
  useEffect(() => {
    if (error) void firstError();
  }, [error, firstError]);

  const toEnd = useCallback(() => {
    setParams({ at: "", from: "" });
    setFollow(true);
  }, [setParams]);
  useKeys([
    { keys: "e", label: "First error", run: () => setError("1") },
    { keys: "f", label: "Follow the end", run: toEnd },
    { keys: "w", label: "Wrap long lines", run: () => setWrap(wrap ? "" : "1") },
  ]);

  if (job.attempts.length === 0)
    return <Empty title="No lines yet" text="It has not started. Its logs appear here, rank by rank, and stay when it has ended." commands={[`weft logs -f ${job.id}`]} />;
  return (
    <div className={job_css.stack}>
      <div className={job_css.tools} role="toolbar" aria-label="Log">
        <div className={css.search}>
          <input type="search" aria-label="Search the log" placeholder="Search: a regular expression" value={text} onChange={(event) => setText(event.target.value)} />
        </div>
        <select aria-label="Rank" value={rank} onChange={(event) => setParams({ rank: event.target.value, at: "" })}>
          <option value="">All ranks</option>
          {log.ranks.map((one) => (
            <option key={one} value={String(one)}>{rankName(one)}</option>
          ))}
        </select>
        {job.attempts.length > 1 && (
          <select aria-label="Attempt" value={attempt} onChange={(event) => setParams({ attempt: event.target.value, at: "" })}>
            <option value="">Attempt {job.attempts.at(-1)!.number}</option>
            {job.attempts.slice(0, -1).map((one) => (
              <option key={one.number} value={String(one.number)}>Attempt {one.number}</option>
            ))}
          </select>
        )}
        <Button small onClick={() => setError("1")}>First error</Button>
        <Chip on={follow && from === "end" && !at} onClick={() => (follow && from === "end" && !at ? setFollow(false) : toEnd())}>Follow</Chip>
        <Chip on={from === "start"} onClick={() => (from === "start" ? toEnd() : (setFollow(false), setParams({ from: "start", at: "" })))}>From the start</Chip>
        <Chip on={wrap === "1"} onClick={() => setWrap(wrap ? "" : "1")}>Wrap</Chip>
        <a className={job_css.push} href={url(`/jobs/${job.id}/logs/raw`, { rank: rank || undefined, attempt })} download>Raw</a>
      </div>
      {log.error ? <Wrong error={log.error} /> : null}
      <div className={css.frame}>
      <Lines box={box} lines={log.lines} search={grep} wrap={wrap === "1"} follow={follow && from === "end" && !at} found={log.found} more={log.ended ? null : log.more} onLeave={() => setFollow(false)} older={log.top || grep ? null : log.older} />
      <div className={css.foot} role="status">
        <span>
          {log.loading ? "reading" : plural(log.lines.length, "line")}
          {grep ? ` with ${grep}` : ""}
          {!log.loading && log.lines.length === 0 && (grep ? "; none matches" : "; nothing was written")}
        </span>
        <span>{log.ended ? "the end" : follow ? "following" : "there may be more"}</span>
      </div>
      </div>
    </div>
  );
}

interface LinesProps {
  box: React.RefObject<HTMLDivElement | null>;
  lines: LogLineView[];
  search: string;
  wrap: boolean;
  follow: boolean;
  found: number;
  older: (() => Promise<number>) | null;
  more: (() => void) | null;
  onLeave: () => void;
}

function Lines({ box, lines, search, wrap, follow, found, older, more, onLeave }: LinesProps) {
  const pattern = useMemo(() => expression(search), [search]);
  const rows = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => 19, overscan: 30 });
  const last = lines.length - 1;
  useEffect(() => {
    if (follow && last >= 0) rows.scrollToIndex(last, { align: "end" });
  }, [follow, last, rows]);
  useEffect(() => {
    if (found >= 0) rows.scrollToIndex(found, { align: "center" });
  }, [found, rows]);
  const items = rows.getVirtualItems();
  const bottom = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (!follow && more && last >= 0 && bottom >= last - 50) more();
  }, [bottom, last, follow, more]);
  async function readAbove(): Promise<void> {
    const came = (await older?.()) ?? 0;
    if (came > 0) requestAnimationFrame(() => rows.scrollToIndex(came, { align: "start" }));
  }
  return (
      <div
        ref={box}
        role="log"
        aria-label="Log lines"
        aria-live="off"
        tabIndex={0}
        className={`${css.lines} ${wrap ? css.wrap : ""}`}
        onWheel={(event) => event.deltaY < 0 && onLeave()}
        onKeyDown={(event) => ["PageUp", "ArrowUp", "Home"].includes(event.key) && onLeave()}
      >
        {older && !follow && lines.length > 0 && <Button small className={css.older} onClick={() => void readAbove()}>Older lines</Button>}
        <div style={{ height: rows.getTotalSize(), position: "relative", minWidth: "max-content" }}>
          {items.map((item) => {
            const line = lines[item.index]!;
            const shown = plainText(line.text);
            return (
              <div
                key={item.key}
                ref={wrap ? rows.measureElement : undefined}
                data-index={item.index}
                data-severity={severity(shown)}
                data-found={item.index === found}
                className={css.line}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <span className={css.rank} title={rankName(line.rank)} style={{ color: line.rank < 0 ? "var(--ink-3)" : `var(--line-${(line.rank % 8) + 1})` }}>
                  {line.rank < 0 ? "weft" : line.rank}
                </span>
                <span className={css.number}>{count(line.number)}</span>
                <span>
                  {pieces(shown, pattern).map((piece, index) =>
                    piece.kind === "match" ? (
                      <mark key={index}>{piece.text}</mark>
                    ) : piece.kind === "link" ? (
                      <a key={index} href={piece.text} rel="noreferrer noopener" target="_blank">{piece.text}</a>
                    ) : (
                      piece.text
                    ),
                  )}
                </span>
              </div>
            );
          })}
        </div>
      </div>
  );
}
