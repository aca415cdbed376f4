/** Hosts by rack: what each has, which job takes what, and what its sockets, accelerators and cards look like. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { get, send } from "../api/client";
import { useHosts, useRefresh, useSession } from "../api/queries";
import type { HostDetail, HostView } from "../api/types";
import { useKeys } from "../keys/keys";
import { Button, Dialog, Field, Segments, tell, tellError, useNow, Wrong } from "../parts/controls";
import { Bar, Empty, Facts, layout, Page, Skeleton } from "../parts/layout";
import { toneClass } from "../parts/state";
import { useParam } from "../text/address";
import { ago, bytes, number, plural } from "../text/format";
import css from "./hosts.module.css";

const STATE_TONES: Record<string, "green" | "purple" | "orange" | "grey"> = { up: "green", drained: "purple", lost: "orange" };
const STATE_SHAPES: Record<string, string> = { up: "●", drained: "◇", lost: "✕" };

export default function HostsPage() {
  const hosts = useHosts();
  useRefresh(["hosts", "jobs"], [["hosts"]], 2000);
  const [state, setState] = useParam("state", "all");
  const [q, setQ] = useParam("q");
  const [open, setOpen] = useParam("host");
  const [adding, setAdding] = useState(false);
  const session = useSession();
  const admin = session.data?.user.role === "admin";
  const all = useMemo(() => hosts.data?.hosts ?? [], [hosts.data]);
  const shown = all.filter((host) => (state === "all" || host.state === state) && matches(host, q));
  const colours = useMemo(() => tints(all), [all]);
  const racks = [...Map.groupBy(shown, (host) => host.rack || "no rack")].sort(([a], [b]) => a.localeCompare(b));
  useKeys(admin ? [{ keys: "a", label: "Add a host", run: () => setAdding(true) }] : []);
  return (
    <Page name="Hosts" title="Hosts" actions={admin && all.length > 0 && <Button icon="plus" kind="primary" onClick={() => setAdding(true)}>Add a host</Button>}>
      {hosts.error ? <Wrong error={hosts.error} /> : null}
      {hosts.isPending && <Skeleton lines={6} />}
      {hosts.data && all.length === 0 && (
        <Empty title="No hosts yet" text="Name the machines that may run jobs: this one, or any that ssh reaches without a password." commands={["weft hosts add localhost", "weft hosts add gx01 --label a100"]}>
          {admin && <Button icon="plus" onClick={() => setAdding(true)}>Add a host</Button>}
        </Empty>
      )}
      {all.length > 0 && (
        <div style={{ display: "flex", flexWrap: "wrap", gap: 8 }}>
          <Segments label="State" value={state} options={[["all", `All ${all.length}`], ["up", "Up"], ["drained", "Drained"], ["lost", "Lost"]] as const} onChange={setState} />
          <input type="search" aria-label="Search hosts" placeholder="Name, label or job" value={q} onChange={(event) => setQ(event.target.value)} />
        </div>
      )}
      <div className={css.racks}>
        {racks.map(([rack, members]) => (
          <section key={rack} aria-label={rack}>
            <div className={css.rackHead}>
              <h2>{rack}</h2>
              <span className={layout.note}>{rackSummary(members)}</span>
            </div>
            <div className={css.grid}>
              {members.map((host) => (
                <HostCard key={host.name} host={host} colours={colours} admin={admin} onOpen={() => setOpen(host.name)} />
              ))}
            </div>
          </section>
        ))}
      </div>
      {open && <HostDialog name={open} admin={admin} onClose={() => setOpen("")} />}
      {adding && <AddDialog onClose={() => setAdding(false)} />}
    </Page>
  );
}

function matches(host: HostView, q: string): boolean {
  return !q || host.name.includes(q) || host.labels.some((label) => label.includes(q)) || host.jobs.some((job) => job.name.includes(q) || String(job.id) === q);
}

function rackSummary(hosts: HostView[]): string {
  const gpus = hosts.reduce((sum, host) => sum + host.total.gpus!, 0);
  const used = hosts.reduce((sum, host) => sum + host.used.gpus!, 0);
  return gpus ? `${plural(hosts.length, "host")}, ${number(used)} of ${number(gpus)} GPUs in use` : plural(hosts.length, "host");
}

/** Returns the colour of each job, the same on every host; from the ninth on, with stripes. */
export function tints(hosts: readonly HostView[]): Tints {
  const ids = [...new Set(hosts.flatMap((host) => host.jobs.map((job) => job.id)))].sort((a, b) => a - b);
  return new Map(
    ids.map((id, index) => {
      const tone = `var(--line-${(index % 8) + 1})`;
      const pale = `color-mix(in srgb, ${tone} 45%, var(--surface))`;
      return [id, index < 8 ? tone : `repeating-linear-gradient(135deg, ${tone} 0 3px, ${pale} 3px 6px)`];
    }),
  );
}

type Tints = ReadonlyMap<number, string>;

function HostCard({ host, colours, admin, onOpen }: { host: HostView; colours: Tints; admin: boolean; onOpen: () => void }) {
  const now = useNow(10_000);
  return (
    <article className={css.host} data-state={host.state} aria-label={`host ${host.name}`}>
      <div className={css.hostHead}>
        <button type="button" className={css.name} onClick={onOpen}>{host.name}</button>
        <span className={toneClass(STATE_TONES[host.state] ?? "grey")}>
          <span aria-hidden="true">{STATE_SHAPES[host.state] ?? "○"}</span> {host.state}
        </span>
        {admin ? <DrainButton host={host} /> : <span />}
      </div>
      {host.message && <p className={host.state === "lost" ? css.message : layout.note}>{host.message}{host.state === "lost" && host.seen_ms ? `, seen ${ago(host.seen_ms, now)}` : ""}</p>}
      {host.total.gpus! > 0 && <Slots host={host} colours={colours} />}
      <Meter colours={colours} label="cores" host={host} used={host.used.cpus!} total={host.total.cpus!} text={`${number(host.used.cpus!)} of ${number(host.total.cpus!)}`} />
      <Meter colours={colours} label="memory" host={host} used={host.used.memory_bytes!} total={host.total.memory_bytes!} text={`${bytes(host.used.memory_bytes!)} of ${bytes(host.total.memory_bytes!)}`} />
      {host.jobs.length > 0 && (
        <ul className={css.jobs}>
          {host.jobs.map((job) => (
            <li key={job.id}>
              <i style={{ background: colours.get(job.id) }} />
              <Link href={`/jobs/${job.id}`}>{job.name}</Link>
              <small>{plural(job.workers, "worker")}</small>
            </li>
          ))}
        </ul>
      )}
      {host.labels.length > 0 && (
        <div className={css.labels}>
          {host.labels.map((label) => (
            <span key={label} className={css.label}>{label}</span>
          ))}
        </div>
      )}
    </article>
  );
}

/** Accelerators as boxes, in the colours of the jobs that hold them. */
function Slots({ host, colours }: { host: HostView; colours: Tints }) {
  const held = host.jobs.flatMap((job) => Array.from({ length: job.workers }, () => job));
  const total = Math.round(host.total.gpus!);
  return (
    <div className={css.slots} role="img" aria-label={`${number(host.used.gpus!)} of ${total} GPUs in use`}>
      {Array.from({ length: total }, (_, index) => (
        <div key={index} className={css.slot} style={held[index] ? { background: colours.get(held[index].id) } : undefined} title={held[index]?.name ?? "free"} />
      ))}
    </div>
  );
}

/** A bar in parts, one for each job, by its share of the workers. */
function Meter({ colours, label, host, used, total, text }: { colours: Tints; label: string; host: HostView; used: number; total: number; text: string }) {
  const workers = host.jobs.reduce((sum, job) => sum + job.workers, 0) || 1;
  const share = total > 0 ? used / total : 0;
  return (
    <div className={css.meter}>
      <span>{label}</span>
      <div className={css.track} role="img" aria-label={`${label}: ${text}`}>
        {host.jobs.map((job) => (
          <div key={job.id} style={{ width: `${(share * job.workers * 100) / workers}%`, background: colours.get(job.id) }} />
        ))}
      </div>
      <span>{text}</span>
    </div>
  );
}

function DrainButton({ host }: { host: HostView }) {
  const client = useQueryClient();
  const verb = host.state === "drained" ? "undrain" : "drain";
  async function ask(): Promise<void> {
    try {
      await send("POST", `/hosts/${encodeURIComponent(host.name)}/${verb}`);
      tell(verb === "drain" ? `${host.name} takes no new workers` : `${host.name} takes workers again`);
      void client.invalidateQueries({ queryKey: ["hosts"] });
    } catch (error) {
      tellError(error);
    }
  }
  return <Button small onClick={() => void ask()} aria-label={`${verb} ${host.name}`}>{verb === "drain" ? "Drain" : "Undrain"}</Button>;
}

interface Topology {
  cores?: { socket: number; index: number; numa: number | null; cpus: number[] }[];
  memory_bytes?: number;
  accelerators?: { index: number; model: string; memory_bytes: number; socket: number | null }[];
  cards?: { name: string; addresses: string[]; speed_mbps: number | null; mtu: number; up: boolean; loopback: boolean }[];
}

function HostDialog({ name, admin, onClose }: { name: string; admin: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const host = useQuery({ queryKey: ["hosts", name], queryFn: () => get<HostDetail>(`/hosts/${encodeURIComponent(name)}`) });
  const [labels, setLabels] = useState<string | null>(null);
  const topology = host.data?.topology as Topology | null | undefined;
  async function save(): Promise<void> {
    try {
      await send("PATCH", `/hosts/${encodeURIComponent(name)}`, { labels: (labels ?? "").split(/[\s,]+/).filter(Boolean) });
      tell(`${name}: labels kept`);
      setLabels(null);
      void client.invalidateQueries({ queryKey: ["hosts"] });
    } catch (error) {
      tellError(error);
    }
  }
  return (
    <Dialog title={`Host ${name}`} onClose={onClose}>
      {host.error ? <Wrong error={host.error} /> : null}
      {host.isPending && <Skeleton />}
      {host.data && (
        <div className={css.sockets}>
          <Facts
            facts={[
              ["Rack", host.data.rack || "–"],
              ["Cores", number(host.data.total.cpus!)],
              ["Memory", bytes(host.data.total.memory_bytes!)],
              ["GPUs", number(host.data.total.gpus!)],
              host.data.seen_ms !== null && ["Seen", ago(host.data.seen_ms)],
            ]}
          />
          {admin && (
            <form onSubmit={(event) => { event.preventDefault(); void save(); }} style={{ display: "flex", gap: 8, alignItems: "end" }}>
              <div style={{ flex: 1 }}>
                <Field label="Labels, by which jobs ask for hosts">
                  <input type="text" value={labels ?? host.data.labels.join(" ")} onChange={(event) => setLabels(event.target.value)} />
                </Field>
              </div>
              <Button type="submit" disabled={labels === null}>Keep</Button>
            </form>
          )}
          {host.data.links.length > 0 && <LinksView links={host.data.links} />}
          {topology ? <TopologyView topology={topology} /> : <p className={layout.note}>Its topology is not known yet; it is looked at when it answers.</p>}
        </div>
      )}
    </Dialog>
  );
}

/** Measured links to other hosts; a slow one, against the best of them, stands out. */
function LinksView({ links }: { links: HostDetail["links"] }) {
  const best = Math.max(...links.map((link) => link.mbps ?? 0));
  const speed = (mbps: number | null): string =>
    mbps === null ? "–" : mbps >= 1000 ? `${number(Number((mbps / 1000).toPrecision(3)))} Gbit/s` : `${number(Math.round(mbps))} Mbit/s`;
  return (
    <div className={layout.scroll} tabIndex={0} role="group" aria-label="Measured links">
      <table className={layout.table}>
        <thead><tr><th>Link to</th><th>Speed</th><th className={layout.number}>There</th><th className={layout.number}>Back</th><th className={layout.number}>Round trip</th><th>Measured</th></tr></thead>
        <tbody>
          {links.map((link) => {
            const share = best > 0 && link.mbps !== null ? link.mbps / best : 0;
            return (
              <tr key={link.to}>
                <td>{link.to}</td>
                <td style={{ minWidth: "5rem", verticalAlign: "middle" }}><Bar share={share} label={`${link.to}: ${speed(link.mbps)}`} tone={share < 0.7 ? "var(--orange)" : "var(--blue)"} /></td>
                <td className={layout.number}>{speed(link.mbps)}</td>
                <td className={layout.number}>{speed(link.back_mbps)}</td>
                <td className={layout.number}>{link.rtt_ms === null ? "–" : `${number(Number(link.rtt_ms.toPrecision(3)))} ms`}</td>
                <td>{ago(link.measured_ms)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function TopologyView({ topology }: { topology: Topology }) {
  const cores = topology.cores ?? [];
  const sockets = [...new Set(cores.map((core) => core.socket))].sort((a, b) => a - b);
  const cards = (topology.cards ?? []).filter((card) => !card.loopback);
  return (
    <>
      {sockets.map((socket) => {
        const own = cores.filter((core) => core.socket === socket);
        const gpus = (topology.accelerators ?? []).filter((gpu) => (gpu.socket ?? sockets[0]) === socket);
        const numas = [...new Set(own.map((core) => core.numa))];
        return (
          <div key={socket} className={css.socket}>
            <h3>Socket {socket}: {plural(own.length, "core")}{numas.length > 1 ? `, ${numas.length} NUMA domains` : ""}</h3>
            <div className={css.cores} role="img" aria-label={`${own.length} cores`}>
              {own.map((core) => (
                <i key={core.index} data-numa={numas.indexOf(core.numa) % 2} title={`core ${core.index}: CPUs ${core.cpus.join(", ")}`} />
              ))}
            </div>
            <div className={css.gpus}>
              {gpus.map((gpu) => (
                <span key={gpu.index} className={css.gpu} title={`${gpu.model}, ${bytes(gpu.memory_bytes)}`}>GPU {gpu.index}</span>
              ))}
            </div>
            {gpus[0] && <p className={layout.note}>{gpus[0].model}, {bytes(gpus[0].memory_bytes)} each</p>}
          </div>
        );
      })}
      {cards.length > 0 && (
        <table className={layout.table}>
          <thead><tr><th>Card</th><th>Addresses</th><th className={layout.number}>Speed</th><th className={layout.number}>MTU</th></tr></thead>
          <tbody>
            {cards.map((card) => (
              <tr key={card.name}>
                <td>{card.name}{card.up ? "" : " (down)"}</td>
                <td>{card.addresses.join(", ")}</td>
                <td className={layout.number}>{card.speed_mbps ? `${number(card.speed_mbps / 1000)} Gbit/s` : "–"}</td>
                <td className={layout.number}>{card.mtu}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function AddDialog({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const [wrong, setWrong] = useState<unknown>(null);
  async function add(form: FormData): Promise<void> {
    try {
      await send("POST", "/hosts", { name: String(form.get("name")), labels: String(form.get("labels")).split(/[\s,]+/).filter(Boolean), rack: String(form.get("rack")) });
      void client.invalidateQueries({ queryKey: ["hosts"] });
      onClose();
    } catch (error) {
      setWrong(error);
    }
  }
  return (
    <Dialog title="Add a host" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" form="add-host">Add</Button></>}>
      <form id="add-host" className={css.sockets} onSubmit={(event) => { event.preventDefault(); void add(new FormData(event.currentTarget)); }}>
        {wrong ? <Wrong error={wrong} /> : null}
        <Field label="Name, as ssh knows it"><input type="text" name="name" required autoFocus /></Field>
        <Field label="Labels"><input type="text" name="labels" placeholder="a100 nvlink" /></Field>
        <Field label="Rack"><input type="text" name="rack" /></Field>
      </form>
    </Dialog>
  );
}
