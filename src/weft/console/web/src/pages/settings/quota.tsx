/** The quota of a user: the most that their jobs may hold at a time, and their weight in the fair share. */
import type { UserQuota, UserView } from "../../api/types";
import { Button, Dialog, Field } from "../../parts/controls";
import { bytes, number, plural } from "../../text/format";
import { submitted } from "./parts";
import css from "./settings.module.css";

const GIB = 2 ** 30;

/** Returns limits in words: "8 cores, 2 GPUs, weight 2", or "no limit". */
export function limitsOf(quota: UserQuota | undefined): string {
  const { cpus = null, memory_bytes: memory = null, gpus = null, weight = 1 } = quota ?? {};
  const parts = [cpus !== null && plural(cpus, "core"), memory !== null && bytes(memory), gpus !== null && plural(gpus, "GPU"), weight !== 1 && `weight ${number(weight)}`];
  return parts.filter(Boolean).join(", ") || "no limit";
}

/** Returns the number in a field of a form; an empty one means no limit. */
export function limitFrom(text: FormDataEntryValue | null): number | null {
  return typeof text === "string" && text.trim() !== "" ? Number(text) : null;
}

export function QuotaDialog({ user, onClose, onSet }: { user: UserView; onClose: () => void; onSet: (quota: UserQuota) => void }) {
  const quota = user.quota ?? {};
  const set = submitted((form) => {
    const memory = limitFrom(form.get("memory"));
    onSet({ weight: limitFrom(form.get("weight")) ?? 1, cpus: limitFrom(form.get("cpus")), memory_bytes: memory === null ? null : memory * GIB, gpus: limitFrom(form.get("gpus")) });
  });
  const fields = [
    ["cpus", "Cores", quota.cpus],
    ["memory", "Memory, GiB", quota.memory_bytes == null ? null : quota.memory_bytes / GIB],
    ["gpus", "GPUs", quota.gpus],
  ] as const;
  return (
    <Dialog
      title={`Quota of ${user.name}`}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form="quota">Set</Button>
        </>
      }
    >
      <form id="quota" className={css.once} onSubmit={set}>
        <p>The most that their jobs hold at a time; more of them wait. An empty field means no limit.</p>
        <div className={css.form}>
          {fields.map(([name, label, value]) => (
            <Field key={name} label={label}><input type="number" name={name} min={0} step="any" defaultValue={value ?? ""} /></Field>
          ))}
          <Field label="Weight in the fair share"><input type="number" name="weight" min={0.001} max={1000} step="any" defaultValue={quota.weight ?? 1} /></Field>
        </div>
      </form>
    </Dialog>
  );
}
