/** A served model tried in the page: drop a picture, see boxes, classes or a heat map, and copy the same as code. */
import { useEffect, useRef, useState } from "react";
import { ApiError, csrfToken, url } from "../../../api/client";
import type { PredictAnswer, PredictedBox } from "../../../api/types";
import { Button, copyText, Segments, Wrong } from "../../../parts/controls";
import { Bar, Card, layout } from "../../../parts/layout";
import { number, percent, plural } from "../../../text/format";
import { coloursOf } from "../../../vision/colours";
import css from "../train/train.module.css";

const LEAST = 0.05; // confidence that is asked for; the slider hides more of it
const colours = coloursOf([]);

/** Returns the request of the panel as a program of one's own. */
export function exampleCode(kind: "curl" | "python", address: string): string {
  if (kind === "curl") return `curl -H "Authorization: Bearer $TOKEN" --data-binary @picture.jpg \\\n  "${address}?confidence=0.25"`;
  return `import requests\n\nwith open("picture.jpg", "rb") as file:\n    answer = requests.post(\n        "${address}",\n        params={"confidence": 0.25},\n        headers={"Authorization": f"Bearer {token}"},\n        data=file,\n    )\nprint(answer.json())`;
}

const PATIENCE_MS = 180_000; // for a server that was started a moment ago
const PAUSE_MS = 700;

/** Returns the answer of a served model; one that is being started is waited for. */
async function predict(deployment: string, file: File, onStarting: () => void): Promise<PredictAnswer> {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await ask(deployment, file);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 503 || performance.now() > until) throw error;
      onStarting();
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
  }
}

async function ask(deployment: string, file: File): Promise<PredictAnswer> {
  const response = await fetch(url(`/vision/deployments/${encodeURIComponent(deployment)}/predict`, { confidence: LEAST, top: 10 }), {
    method: "POST", body: file, headers: { "x-weft-csrf": csrfToken(), "content-type": "application/octet-stream" },
  });
  const answer = (await response.json().catch(() => null)) as (PredictAnswer & { error?: { code: string; text: string } }) | null;
  if (!response.ok || !answer) throw new ApiError(response.status, answer?.error?.code ?? "unknown", answer?.error?.text ?? `${response.status} ${response.statusText}`);
  return answer;
}

export function TryPanel({ deployment }: { deployment: string }) {
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [picture, setPicture] = useState<{ address: string; width: number; height: number } | null>(null);
  const [answer, setAnswer] = useState<PredictAnswer | null>(null);
  const [starting, setStarting] = useState(false);
  const [took, setTook] = useState(0);
  const [wrong, setWrong] = useState<unknown>(null);
  const [confidence, setConfidence] = useState(0.25);
  const [heat, setHeat] = useState(true);
  const [kind, setKind] = useState<"curl" | "python">("curl");
  useEffect(() => () => (picture ? URL.revokeObjectURL(picture.address) : undefined), [picture]);

  async function take(file: File | undefined): Promise<void> {
    if (!file) return;
    setWrong(null);
    setAnswer(null);
    setStarting(false);
    const address = URL.createObjectURL(file);
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      setPicture({ address, width: image.naturalWidth, height: image.naturalHeight });
      const began = performance.now();
      setAnswer(await predict(deployment, file, () => setStarting(true)));
      setTook(performance.now() - began);
    } catch (error) {
      setWrong(error instanceof DOMException ? new Error(`${file.name} must be a picture that this browser shows, got something else`) : error);
    }
  }
  const found = (answer?.detections ?? []).filter((one) => one.confidence >= confidence);
  const address = `${window.location.origin}${url(`/vision/deployments/${encodeURIComponent(deployment)}/predict`)}`;
  return (
    <Card title="Try it" extra={answer && <span className={layout.note}>{number(took)} ms with the way there</span>}>
      <div className={css.try}>
        <button
          type="button"
          className={css.zone}
          data-over={over || undefined}
          data-full={picture !== null || undefined}
          aria-label={picture ? "Try another picture" : "Drop a picture here, or press to choose one"}
          onClick={() => input.current?.click()}
          onDragOver={(event) => {
            event.preventDefault();
            setOver(true);
          }}
          onDragLeave={() => setOver(false)}
          onDrop={(event) => {
            event.preventDefault();
            setOver(false);
            void take(event.dataTransfer.files[0]);
          }}
        >
          {!picture && "Drop a picture here, or press to choose one"}
          {picture && <Seen picture={picture} found={found} />}
          {picture && heat && answer?.heatmap && <img className={css.heat} src={answer.heatmap} alt="" />}
        </button>
        <div className={css.answers} role="status">
          {wrong ? <Wrong error={wrong} /> : null}
          {answer && (
            <label className={css.slider}>Confidence from<input type="range" min={LEAST} max={0.99} step={0.01} value={confidence} onChange={(event) => setConfidence(Number(event.target.value))} /><output>{percent(confidence)}</output></label>
          )}
          {answer?.heatmap && <label><input type="checkbox" checked={heat} onChange={(event) => setHeat(event.target.checked)} /> heat map: where it looked</label>}
          {answer?.detections && <p>{plural(found.length, "object")}</p>}
          <ul className={css.answers}>
            {answer?.classified?.filter((one) => one.confidence >= Math.min(confidence, answer.classified![0]?.confidence ?? 0)).map((one) => <Answer key={one.label} label={one.label} confidence={one.confidence} />)}
            {found.slice(0, 20).map((one, index) => <Answer key={index} label={one.label} confidence={one.confidence} />)}
          </ul>
          {!answer && !wrong && picture && <p className={layout.note}>{starting ? "The model is being started; the answer comes as soon as it runs." : "It looks…"}</p>}
          <Segments label="As code" value={kind} options={[["curl", "curl"], ["python", "Python"]] as const} onChange={setKind} />
          <pre className={css.code} tabIndex={0} aria-label="the same as code">{exampleCode(kind, address)}</pre>
          <div><Button small icon="copy" onClick={() => void copyText(exampleCode(kind, address))}>Copy</Button></div>
        </div>
      </div>
      <input ref={input} type="file" accept="image/*" hidden aria-label="Picture to try" onChange={(event) => void take(event.target.files?.[0])} />
    </Card>
  );
}

function Answer({ label, confidence }: { label: string; confidence: number }) {
  return <li><div><span>{label}</span><b>{percent(confidence)}</b></div><Bar share={confidence} label={`${label}: ${percent(confidence)}`} tone={colours(label)} /></li>;
}

function Seen({ picture, found }: { picture: { address: string; width: number; height: number }; found: readonly PredictedBox[] }) {
  return (
    <svg viewBox={`0 0 ${picture.width} ${picture.height}`} className={css.found} role="group" aria-label="What it found">
      <image href={picture.address} width={picture.width} height={picture.height} />
      {found.map((one, index) => {
        const look = { style: { "--tone": colours(one.label) } as React.CSSProperties, role: "img", "aria-label": `${one.label}, ${percent(one.confidence)}` };
        return one.polygons?.length
          ? <path key={index} d={one.polygons.map((ring) => `M${ring.map(([x, y]) => `${x} ${y}`).join("L")}Z`).join("")} {...look} />
          : <rect key={index} x={one.xmin} y={one.ymin} width={one.xmax - one.xmin} height={one.ymax - one.ymin} {...look} />;
      })}
    </svg>
  );
}
