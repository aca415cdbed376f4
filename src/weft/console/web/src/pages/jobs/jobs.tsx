/** Jobs and the queue: filters in the address, actions on one or many, all of it by keyboard too. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState } from "react";
import { useLocation } from "wouter";
import { get } from "../../api/client";
import { useJobs, useMayAct, useProjects, useRefresh, useSession } from "../../api/queries";
import type { JobView, QueuesAnswer } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, ButtonLink, Chip, Chips, Dialog, Field, Segments, Wrong } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import { Empty, Page, Skeleton } from "../../parts/layout";
import { StateShape, TONES, toneClass, type JobState } from "../../parts/state";
import { useParam, useSetParams } from "../../text/address";
import { count, plural } from "../../text/format";
import { placed, useJobActions, type Action } from "./actions";
import { ColumnChooser, useHiddenColumns, type ColumnKey } from "./columns";
import css from "./jobs.module.css";
import { JobsTable } from "./table";

const GROUPS: { key: string; text: string; shape: JobState; states: JobState[] }[] = [
  { key: "active", text: "Active", shape: "running", states: ["running", "starting", "staging", "storing"] },
  { key: "waiting", text: "Waiting", shape: "queued", states: ["queued", "held", "paused"] },
  { key: "completed", text: "Completed", shape: "completed", states: ["completed"] },
  { key: "failed", text: "Failed", shape: "failed", states: ["failed"] },
  { key: "stopped", text: "Stopped", shape: "stopped", states: ["stopped"] },
];

export function JobsPage() {
  const [view, setView] = useParam("view", "all");
  const [state, setState] = useParam("state");
  const [project] = useParam("project");
  const [user] = useParam("user");
  const [q] = useParam("q");
  const [sort, setSort] = useParam("sort", "-id");
  const setParams = useSetParams();
  const mayAct = useMayAct();
  const queue = view === "queue";
  const [hidden, onToggle] = useHiddenColumns();

  const list = useJobs({ state: statesOf(state), project, user, q, sort });
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => get<QueuesAnswer>("/queues"), enabled: queue });
  useRefresh(["jobs"], [["jobs"], ["queues"]], 2000);
  // The service makes curves of long lists behind the first answer: they are there when it is asked again.
  const unmade = list.data?.pages.some((page) => page.jobs.some(awaitsHeadline)) ?? false;
  useEffect(() => {
    if (!unmade) return undefined;
    const waits = [1000, 4000].map((wait) => setTimeout(() => void list.refetch(), wait));
    return () => waits.forEach(clearTimeout);
    }, [unmade]);
  const first = list.data?.pages[0];
  const jobs = useMemo(
    () =>
      queue
        ? (queues.data?.queues.flatMap((one) => one.jobs) ?? [])
        : (list.data?.pages.flatMap((page) => page.jobs) ?? []),
    [queue, queues.data, list.data],
  );
  const total = queue ? jobs.length : (first?.total ?? 0);
  const filtered = Boolean(state || project || user || q);
  const onMore = useCallback(() => {
    if (!list.isFetchingNextPage) void list.fetchNextPage();
  }, [list]);
  const onFilter = useCallback((name: "user" | "project", value: string) => setParams({ [name]: value }), [setParams]);

  const error = queue ? queues.error : list.error;
  const pending = queue ? queues.isPending : list.isPending;
  const nothing = !pending && !error && jobs.length === 0 && !filtered;
  return (
    <Page
      name="Jobs"
      fill
      title={
        <>
          Jobs
          {first && (
            <small className={css.total} aria-live="polite">
              {count(total)}
            </small>
          )}
        </>
      }
      actions={
        mayAct && (
          <ButtonLink to="/new" icon="plus" kind="primary">
            New job
          </ButtonLink>
        )
      }
    >
      <div className={css.filters}>
        <Segments
          label="View"
          value={view}
          options={[["all", "All"], ["queue", "Queue"]] as const}
          onChange={(value) => setView(value)}
        />
        {!queue && (
          <>
            <StateChips counts={first?.counts ?? {}} state={state} onChange={setState} />
            <Search />
            <ProjectChoice />
            {user && (
              <Chip on onClick={() => setParams({ user: "" })} label={`show jobs of everybody, not of ${user} alone`}>
                {user} <Icon name="close" size={11} />
              </Chip>
            )}
            <MineChip user={user} />
          </>
        )}
        {jobs.length > 0 && <ColumnChooser queue={queue} hidden={hidden} onToggle={onToggle} />}
      </div>
      {error ? <Wrong error={error} /> : null}
      {pending && <Skeleton lines={8} />}
      {nothing && queue && (
        <Empty title="Nothing waits" text="Every job that was submitted has started, or there is none. This puts one into the queue:" commands={["weft submit -- train.py"]} />
      )}
      {nothing && !queue && (
        <Empty
          title="No jobs yet"
          text="Submit a script from its folder: the code is kept with the job, and what it logs appears here while it runs."
          commands={["weft submit -- train.py --epochs 3", "weft submit job.yaml"]}
        />
      )}
      {!pending && !error && jobs.length === 0 && filtered && !queue && (
        <Empty title="No job is like that" text="The filters let none through.">
          <Button onClick={() => setParams({ state: "", project: "", user: "", q: "" })}>Clear the filters</Button>
        </Empty>
      )}
      {jobs.length > 0 && (
        <JobsList
          key={view}
          jobs={jobs}
          total={total}
          queue={queue}
          sort={sort}
          onSort={setSort}
          more={!queue && Boolean(list.hasNextPage)}
          onMore={onMore}
          onFilter={onFilter}
          mayAct={mayAct}
          hidden={hidden}
        />
      )}
    </Page>
  );
}

/** Returns whether a job has run and its curve is not in the list yet; a job that logs nothing looks the same. */
export function awaitsHeadline(job: JobView): boolean {
  return job.attempt > 0 && job.headline === null;
}

/** Returns the states that the address names; a group's name stands for all of its states. */
export function statesOf(value: string): string {
  return value
    .split(",")
    .flatMap((part) => GROUPS.find((group) => group.key === part)?.states ?? (part ? [part] : []))
    .join(",");
}

function StateChips({ counts, state, onChange }: { counts: Record<string, number>; state: string; onChange: (state: string) => void }) {
  const on = state.split(",").filter(Boolean);
  return (
    <Chips label="States">
      {GROUPS.map((group) => {
        const amount = group.states.reduce((sum, one) => sum + (counts[one] ?? 0), 0);
        const pressed = on.includes(group.key);
        return (
          <Chip
            key={group.key}
            on={pressed}
            onClick={() => onChange((pressed ? on.filter((one) => one !== group.key) : [...on, group.key]).join(","))}
          >
            <span className={toneClass(TONES[group.shape])} style={{ display: "inline-flex" }}>
              <StateShape state={group.shape} />
            </span>
            {group.text} <b>{count(amount)}</b>
          </Chip>
        );
      })}
    </Chips>
  );
}

function Search() {
  const [q, setQ] = useParam("q");
  const [text, setText] = useState(q);
  useEffect(() => setText(q), [q]);
  useEffect(() => {
    if (text === q) return undefined;
    const timer = setTimeout(() => setQ(text), 180);
    return () => clearTimeout(timer);
  }, [text, q, setQ]);
  return (
    <div className={css.search}>
      <Icon name="search" size={14} />
      <input
        type="search"
        aria-label="Search jobs"
        placeholder="Name, or tag=value"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </div>
  );
}

function ProjectChoice() {
  const [project, setProject] = useParam("project");
  const projects = useProjects();
  const names = projects.data?.projects.map((one) => one.name) ?? [];
  if (names.length < 2 && !project) return null;
  return (
    <select aria-label="Project" value={project} onChange={(event) => setProject(event.target.value)}>
      <option value="">All projects</option>
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}

function MineChip({ user }: { user: string }) {
  const session = useSession();
  const setParams = useSetParams();
  const name = session.data?.user.name;
  if (!name || user) return null;
  return (
    <Chip on={false} onClick={() => setParams({ user: name })}>
      Mine
    </Chip>
  );
}

interface ListProps {
  jobs: JobView[];
  total: number;
  queue: boolean;
  sort: string;
  onSort: (sort: string) => void;
  more: boolean;
  onMore: () => void;
  onFilter: (name: "user" | "project", value: string) => void;
  mayAct: boolean;
  hidden: ReadonlySet<ColumnKey>;
}

function JobsList({ jobs, mayAct, ...props }: ListProps) {
  const [, go] = useLocation();
  const actions = useJobActions();
  const [active, setActive] = useState(-1);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [lastChosen, setLastChosen] = useState<number | null>(null);
  const [ranking, setRanking] = useState(false);
  const picked = jobs.filter((job) => chosen.has(job.id));
  const current = jobs[active];
  const targets = picked.length > 0 ? picked : current ? [current] : [];

  const onSelect = useCallback(
    (job: JobView, range: boolean) => {
      const place = jobs.findIndex((one) => one.id === job.id);
      const from = range && lastChosen !== null ? jobs.findIndex((one) => one.id === lastChosen) : place;
      setChosen((old) => {
        const fresh = new Set(old);
        if (range && from >= 0) for (const one of jobs.slice(Math.min(from, place), Math.max(from, place) + 1)) fresh.add(one.id);
        else if (!fresh.delete(job.id)) fresh.add(job.id);
        return fresh;
      });
      setLastChosen(job.id);
    },
    [jobs, lastChosen],
  );
  const onSelectAll = useCallback(
    () => setChosen((old) => (old.size >= jobs.length ? new Set() : new Set(jobs.map((job) => job.id)))),
    [jobs],
  );
  const onPriority = useCallback(
    (job: JobView, change: number) => void actions.change([job], { priority: Math.min(100, Math.max(0, job.priority + change)) }),
    [actions],
  );
  const onPlace = useCallback(
    (moved: number, before: JobView) => {
      const job = jobs.find((one) => one.id === moved);
      const priority = job && placed(jobs, job, before);
      if (job && priority !== undefined && priority !== job.priority) void actions.change([job], { priority });
    },
    [actions, jobs],
  );
  /** Gives the job under the cursor the place above or below it in the queue. */
  const shift = (by: -1 | 1): void => {
    const neighbour = jobs[active + by];
    if (!current || !neighbour) return;
    onPlace(current.id, neighbour);
    setActive(active + by);
  };
  const move = (by: number): void => setActive((old) => Math.min(jobs.length - 1, Math.max(0, old + by)));
  const act = (action: Action): void => {
    if (targets.length > 0) void actions.act(action, targets);
  };
  const compare = (): void => go(`/compare?jobs=${picked.map((job) => job.id).join(",")}`);

  useKeys([
    { keys: "j", label: "Next job", run: () => move(1) },
    { keys: "k", label: "Job before", run: () => move(-1) },
    { keys: "x", label: "Select", run: () => current && onSelect(current, false) },
    { keys: "Enter", label: "Open", run: () => current && go(`/jobs/${current.id}`) },
    { keys: "Escape", label: "Select none", run: () => setChosen(new Set()) },
    { keys: "c", label: "Compare what is selected", run: () => picked.length > 1 && compare() },
    ...(mayAct
      ? [
          { keys: "s", label: "Stop", run: () => act("stop") },
          { keys: "p", label: "Pause", run: () => act("pause") },
          { keys: "r", label: "Retry", run: () => act("retry") },
          ...(props.queue
            ? [
                { keys: "K", label: "Move up in the queue", run: () => shift(-1) },
                { keys: "J", label: "Move down in the queue", run: () => shift(1) },
              ]
            : []),
          { keys: "+", label: "Raise the priority", run: () => current && onPriority(current, 10) },
          { keys: "-", label: "Lower the priority", run: () => current && onPriority(current, -10) },
        ]
      : []),
  ]);

  return (
    <div className={css.frame}>
      {picked.length > 0 && (
        <div className={css.bulk} role="toolbar" aria-label="Actions on the selected jobs">
          <b>{count(picked.length)} selected</b>
          {mayAct && (
            <>
              <Button small icon="stop" onClick={() => act("stop")}>Stop</Button>
              <Button small icon="pause" onClick={() => act("pause")}>Pause</Button>
              <Button small icon="play" onClick={() => act("resume")}>Resume</Button>
              <Button small icon="retry" onClick={() => act("retry")}>Retry</Button>
              <Button small icon="up" onClick={() => setRanking(true)}>Priority</Button>
            </>
          )}
          <Button small icon="compare" disabled={picked.length < 2} onClick={compare}>Compare</Button>
          <Button small kind="quiet" onClick={() => setChosen(new Set())}>Clear</Button>
        </div>
      )}
      <JobsTable jobs={jobs} active={active} chosen={chosen} onSelect={onSelect} onSelectAll={onSelectAll} onPriority={onPriority} onPlace={onPlace} {...props} />
      {ranking && <PriorityDialog jobs={picked} onClose={() => setRanking(false)} />}
    </div>
  );
}

function PriorityDialog({ jobs, onClose }: { jobs: JobView[]; onClose: () => void }) {
  const actions = useJobActions();
  const [value, setValue] = useState(jobs[0]?.priority ?? 50);
  return (
    <Dialog
      title={`Priority of ${plural(jobs.length, "job")}`}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" onClick={() => void actions.change(jobs, { priority: value }).then(onClose)}>
            Set to {value}
          </Button>
        </>
      }
    >
      <Field label="From 0, last, to 100, first">
        <input type="range" min={0} max={100} step={5} value={value} onChange={(event) => setValue(Number(event.target.value))} />
      </Field>
    </Dialog>
  );
}
