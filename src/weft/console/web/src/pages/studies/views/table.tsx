/** The table of trials: as many rows in the page as fit, with filters that hold in every view. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../../../keys/keys";
import { Icon } from "../../../parts/icons";
import { layout } from "../../../parts/layout";
import { Sparkline } from "../../../parts/sparkline";
import { useParam } from "../../../text/address";
import { count, duration, number } from "../../../text/format";
import { isPromoted, sortTrials, thin } from "../../../text/studies";
import css from "../studies.module.css";
import { bestOf, FilterChips, TrialMark, useFilters, useParameters, type StudyProps } from "../view";

export default function TrialsTab(props: StudyProps) {
  const { trials, detail, metric, small, chosen, choose } = props;
  const filters = useFilters(trials);
  const [sort, setSort] = useParam("sort", "-trial");
  const [active, setActive] = useState(0);
  const names = useParameters(props).slice(0, 8);
  const metrics = Object.keys(detail.study.metrics);
  const rows = useMemo(() => sortTrials(filters.shown, sort), [filters.shown, sort]);
  const best = bestOf(trials, metric, small)?.number ?? null;
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => 34, overscan: 12, scrollPaddingStart: 34 });
  const move = (by: number): void => {
    const next = Math.min(rows.length - 1, Math.max(0, active + by));
    setActive(next);
    virtual.scrollToIndex(next);
  };
  useKeys([
    { keys: "j", label: "Next trial", run: () => move(1) },
    { keys: "k", label: "Trial before", run: () => move(-1) },
    { keys: "Enter", label: "Open the trial", run: () => rows[active] && choose(rows[active].number) },
  ]);
  useEffect(() => setActive(0), [sort, filters.text]);
  const columns = [["trial", "Trial"], ["state", "State"], ...metrics.map((name) => [name, name] as const), ["", "Curve"], ["step", "Step"], ["time", "Ran"], ...names.map((name) => [name, name] as const)] as const;
  const template = `4.5rem 9.5rem ${metrics.map(() => "minmax(5rem, 1fr)").join(" ")} 6rem 5rem 5.5rem ${names.map(() => "minmax(5rem, 1fr)").join(" ")}`;
  return (
    <div className={css.stack}>
      <div className={css.tools}>
        <input type="search" className={css.find} aria-label="Find trials" placeholder="lr<0.01 optimizer=adam" value={filters.text} onChange={(event) => filters.setText(event.target.value)} />
        <FilterChips trials={trials} filters={filters} />
        <span className={layout.note}>{count(rows.length)} of {count(trials.length)}</span>
      </div>
      <div ref={box} role="grid" tabIndex={0} aria-label="Trials" aria-rowcount={rows.length + 1} className={css.trials} aria-activedescendant={rows[active] ? `trial-row-${rows[active].number}` : undefined}>
        <div role="row" aria-rowindex={1} className={css.trialHead} style={{ gridTemplateColumns: template }}>
          {columns.map(([key, text]) => (
            <div key={text} role="columnheader" aria-sort={sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none"}>
              {key ? (
                <button type="button" onClick={() => setSort(sort === key ? `-${key}` : key)}>
                  {text}
                  {(sort === key || sort === `-${key}`) && <Icon name={sort === key ? "up" : "down"} size={11} />}
                </button>
              ) : text}
            </div>
          ))}
        </div>
        <div role="rowgroup" className={css.trialBody} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const trial = rows[item.index]!;
            return (
              <div
                key={trial.number} id={`trial-row-${trial.number}`} role="row" aria-rowindex={item.index + 2} aria-selected={trial.number === chosen}
                data-active={item.index === active} data-best={trial.number === best} className={css.trialRow} style={{ gridTemplateColumns: template, top: item.start }}
                onClick={() => (setActive(item.index), choose(trial.number))}
              >
                <div role="gridcell"><button type="button" className={css.link} onClick={() => choose(trial.number)}>{trial.number}{trial.number === best ? " best" : ""}</button></div>
                <div role="gridcell"><TrialMark state={trial.state} />{isPromoted(trial) && <span className={css.promoted} title="promoted"> ▲</span>}</div>
                {metrics.map((name) => <div key={name} role="gridcell">{typeof trial.values[name] === "number" ? number(trial.values[name]) : (trial.values[name] ?? "–")}</div>)}
                <div role="gridcell"><Sparkline values={thin(trial.curve ?? [], 40).map(([, value]) => (typeof value === "number" ? value : null))} label={`curve of trial ${trial.number}`} /></div>
                <div role="gridcell">{count(trial.step)}{trial.until ? ` of ${count(trial.until)}` : ""}</div>
                <div role="gridcell">{duration((trial.run_s ?? 0) * 1000)}</div>
                {names.map((name) => {
                  const value = trial.params[name];
                  return <div key={name} role="gridcell">{value === undefined ? "–" : typeof value === "number" ? number(value) : String(value)}</div>;
                })}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
