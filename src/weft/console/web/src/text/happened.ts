/** Events of a job in words. */
import type { EventView } from "../api/types";
import { number, plural } from "./format";

type Data = Record<string, unknown>;
export type EventTone = "blue" | "green" | "orange" | "amber" | "purple" | "grey";

const text = (value: unknown): string => (value === null || value === undefined ? "" : String(value));

function hosts(value: unknown): string {
  if (!Array.isArray(value)) return "";
  return value.map((one) => (typeof one === "object" && one ? `${text((one as Data)["host"])} ×${text((one as Data)["workers"])}` : text(one))).join(", ");
}

/** Returns what happened, what is worth saying beside, and a tone. */
export function happened(event: EventView): { head: string; more: string; tone: EventTone } {
  const data = event.data;
  const by = data["user"] ? `by ${text(data["user"])}` : "";
  switch (event.kind) {
    case "submitted":
      return { head: "Submitted", more: by, tone: "grey" };
    case "state": {
      const state = text(data["state"]);
      const tones: Record<string, EventTone> = { running: "blue", completed: "green", failed: "orange", paused: "purple", held: "purple", queued: "amber" };
      return { head: state.charAt(0).toUpperCase() + state.slice(1), more: text(data["message"]) || by, tone: tones[state] ?? "grey" };
    }
    case "attempt":
      return { head: `Attempt ${text(data["number"] ?? data["attempt"])}`, more: hosts(data["hosts"]), tone: "blue" };
    case "resized": {
      const from = data["before"] ?? data["from"];
      return {
        head: `Resized ${from === undefined ? "" : `from ${text(from)} `}to ${plural(Number(data["workers"] ?? data["after"] ?? 0), "worker")}`,
        more: text(data["why"] ?? data["reason"]) || hosts(data["hosts"]),
        tone: "purple",
      };
    }
    case "recovery":
      return { head: `Recovered${data["pause_s"] ? ` after ${number(Number(data["pause_s"]))} s` : ""}`, more: text(data["cause"]), tone: "amber" };
    case "finding":
      return { head: `Found: ${text(data["rule"])}`, more: text(data["text"]), tone: "amber" };
    case "acted":
      return { head: "The script acted", more: text(data["text"]), tone: "purple" };
    case "note":
      return { head: text(data["text"]) || "Note", more: by, tone: "grey" };
    default: {
      const rest = Object.entries(data).filter(([name]) => name !== "job" && name !== "user");
      const told = rest.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : text(value)}`);
      return { head: event.kind.charAt(0).toUpperCase() + event.kind.slice(1), more: [by, ...told].filter(Boolean).join(", "), tone: "grey" };
    }
  }
}

/** Returns events with long runs of reports folded: the first and the last of a run stay, and the last says how many are between. */
export function folded(events: readonly EventView[], all: boolean): { event: EventView; left: number }[] {
  const shown: { event: EventView; left: number }[] = [];
  for (let start = 0; start < events.length; ) {
    let end = start + 1;
    if (events[start]!.kind === "note") while (end < events.length && events[end]!.kind === "note") end += 1;
    const between = all ? 0 : Math.max(0, end - start - 2);
    if (between < 3) for (let place = start; place < end; place += 1) shown.push({ event: events[place]!, left: 0 });
    else shown.push({ event: events[start]!, left: 0 }, { event: events[end - 1]!, left: between });
    start = end;
  }
  return shown;
}
