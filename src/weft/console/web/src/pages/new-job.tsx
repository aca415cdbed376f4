/** A new job from YAML: tried as it is typed, with each problem beside the field it is about. */
import { useEffect, useRef, useState } from "react";
import { useLocation } from "wouter";
import { ApiError, onceKey, send } from "../api/client";
import type { RequestProblem, SubmitAnswer } from "../api/types";
import { CodeText } from "../parts/code";
import { Button, Command, tell, Wrong } from "../parts/controls";
import { Card, Facts, layout, Page } from "../parts/layout";
import { plural } from "../text/format";
import { yaml } from "../text/yaml";
import { lineOf } from "../text/yaml-place";
import css from "./new-job.module.css";

const KEY = "weft.new-job";
const EXAMPLE = `run: sh -c 'echo hello from job $WEFT_JOB_ID'
name: hello
workers: 1
resources: {cpus: 1}
queue: {priority: 50, max_time: 10m}
`;

function draft(): string {
  try {
    return sessionStorage.getItem(KEY) ?? EXAMPLE;
  } catch {
    return EXAMPLE;
  }
}

export default function NewJobPage() {
  const [text, setText] = useState(draft);
  const [tried, setTried] = useState<{ answer?: SubmitAnswer; error?: unknown } | null>(null);
  const [busy, setBusy] = useState(false);
  const [, go] = useLocation();
  const editor = useRef<HTMLTextAreaElement>(null);
  const turn = useRef(0);

  useEffect(() => {
    try {
      sessionStorage.setItem(KEY, text);
    } catch {
      /* no storage: the draft lives in this page */
    }
    const mine = ++turn.current;
    const timer = setTimeout(async () => {
      const result = await send<SubmitAnswer>("POST", "/jobs", { yaml: text, snapshot: null, dry_run: true }).then(
        (answer) => ({ answer }),
        (error: unknown) => ({ error }),
      );
      if (mine === turn.current) setTried(result);
    }, 350);
    return () => clearTimeout(timer);
  }, [text]);

  async function submit(): Promise<void> {
    setBusy(true);
    try {
      const answer = await send<SubmitAnswer>("POST", "/jobs", { yaml: text, snapshot: null, dry_run: false }, { "idempotency-key": onceKey() });
      const first = answer.jobs[0]!;
      tell(answer.jobs.length === 1 ? `job ${first.id} is queued` : `${plural(answer.jobs.length, "job")} are queued`);
      go(answer.jobs.length === 1 ? `/jobs/${first.id}` : "/jobs");
    } catch (error) {
      setTried({ error });
      setBusy(false);
    }
  }

  /** Puts the cursor on the line of a field. */
  function show(problem: RequestProblem): void {
    const line = lineOf(text, problem.path);
    const area = editor.current;
    if (line === null || !area) return;
    const before = text.split("\n").slice(0, line).join("\n").length + (line ? 1 : 0);
    area.focus();
    area.setSelectionRange(before, before + (text.split("\n")[line]?.length ?? 0));
  }

  const good = tried?.answer !== undefined;
  return (
    <Page name="New job" title="New job">
      <div className={css.two}>
        <Card title="Specification" extra={<span className={layout.note}>YAML</span>}>
          <textarea
            ref={editor}
            className={css.editor}
            aria-label="Specification in YAML"
            aria-invalid={tried !== null && !good}
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && good) void submit();
            }}
          />
          <div className={css.bar}>
            <Button kind="primary" disabled={!good || busy} onClick={() => void submit()}>Submit</Button>
            <span className={layout.note}>or <kbd>Ctrl</kbd> <kbd>Enter</kbd>; nothing runs before</span>
          </div>
        </Card>
        <div className={css.problems} aria-live="polite">
          {tried?.error ? <Problems error={tried.error} onShow={show} /> : null}
          {tried?.answer && <Plan answer={tried.answer} />}
          <Card title="With your code">
            <div className={css.problems}>
              <p className={layout.note}>A job from this page has no code of its own: it runs a command, or what its image or data brings. From a folder, the code goes with it:</p>
              <Command text="weft submit job.yaml" />
            </div>
          </Card>
        </div>
      </div>
    </Page>
  );
}

function Problems({ error, onShow }: { error: unknown; onShow: (problem: RequestProblem) => void }) {
  const problems = error instanceof ApiError ? error.problems : [];
  if (problems.length === 0) return <Wrong error={error} />;
  return (
    <>
      {problems.map((problem, index) => (
        <div key={index} className={css.problem}>
          <p>
            <button type="button" className={css.where} onClick={() => onShow(problem)} title="show it in the text">
              <code>{problem.path}</code>
            </button>{" "}
            must {problem.must}, got {problem.got}
          </p>
          <p>{problem.next}</p>
        </div>
      ))}
    </>
  );
}

function Plan({ answer }: { answer: SubmitAnswer }) {
  const plan = answer.plan ?? [];
  const first = plan[0];
  if (!first) return null;
  return (
    <Card title={plan.length === 1 ? "It would run" : `${plan.length} jobs would run`}>
      <div className={css.problems}>
        <Facts
          facts={[
            ["Name", plan.length === 1 ? first.name : `${first.name} to ${plan.at(-1)!.name}`],
            ["Workers", first.min_workers === first.max_workers ? first.min_workers : `${first.min_workers} to ${first.max_workers}`],
          ]}
        />
        <CodeText text={first.command} />
        <details>
          <summary>All fields</summary>
          <CodeText text={yaml(first.spec)} />
        </details>
      </div>
    </Card>
  );
}
