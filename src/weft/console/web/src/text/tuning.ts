/** The settings of a study from the dialog "New tuning"; all pure. */

/** Optimizers by their modern names; those that have a momentum of their own take that parameter. */
export const OPTIMIZERS: Record<string, string> = {
  sgd: "SGD", nesterov: "Nesterov", adam: "Adam", adamw: "AdamW", adagrad: "Adagrad", adadelta: "Adadelta", rmsprop: "RMSprop",
  nadam: "NAdam", radam: "RAdam", adafactor: "Adafactor", muon: "Muon",
};
export const WITH_MOMENTUM = ["sgd", "nesterov", "rmsprop", "muon"];

export interface Range {
  on: boolean;
  low: string;
  high: string;
}

export interface TuningForm {
  name: string;
  script: string;
  run: string; // empty: made of the script and the parameters
  lr: Range;
  hidden: Range;
  decay: Range;
  momentum: Range;
  batch: { on: boolean; values: string };
  optimizers: string[];
  metric: string;
  goal: "minimize" | "maximize";
  search: string;
  schedule: string;
  resource: { name: string; min: string; max: string }; // without a min, the study chooses where it first compares
  trials: string;
  time: string;
  parallel: string;
  workers: string;
  gpus: string;
}

export const FIRST_FORM: TuningForm = {
  name: "tuning",
  script: "train.py",
  run: "",
  lr: { on: true, low: "0.01", high: "0.1" },
  hidden: { on: false, low: "64", high: "512" },
  decay: { on: true, low: "0", high: "0.1" },
  momentum: { on: true, low: "0.8", high: "0.9" },
  batch: { on: false, values: "32,64,128,256" },
  optimizers: ["sgd", "adam", "adamw"],
  metric: "loss",
  goal: "minimize",
  search: "tpe",
  schedule: "asha",
  resource: { name: "epochs", min: "", max: "27" },
  trials: "50",
  time: "",
  parallel: "2",
  workers: "1",
  gpus: "0",
};

/** Returns the space that the form describes, as study.yaml writes it. */
export function spaceOf(form: TuningForm): Record<string, unknown> {
  const space: Record<string, unknown> = {};
  if (form.lr.on) space["lr"] = `log:${form.lr.low}:${form.lr.high}`;
  if (form.hidden.on) space["hidden"] = `int:${form.hidden.low}:${form.hidden.high}:log`;
  if (form.decay.on) space["decay"] = `float:${form.decay.low}:${form.decay.high}`;
  if (form.optimizers.length > 0) space["optimizer"] = form.optimizers;
  const moved = form.optimizers.filter((name) => WITH_MOMENTUM.includes(name));
  if (form.momentum.on && (moved.length > 0 || form.optimizers.length === 0)) {
    const range = `float:${form.momentum.low}:${form.momentum.high}`;
    const always = moved.length === form.optimizers.length;
    space["momentum"] = always ? range : `${range} if ${moved.length === 1 ? `optimizer == ${moved[0]}` : `optimizer in [${moved.join(", ")}]`}`;
  }
  if (form.batch.on) space["batch"] = `ordered:${form.batch.values.replaceAll(" ", "")}`;
  return space;
}

/** Returns the command that passes each parameter on: train.py --lr {lr}. */
export function commandOf(form: TuningForm): string {
  if (form.run.trim()) return form.run.trim();
  const names = Object.keys(spaceOf(form));
  const resource = hasResource(form) ? [form.resource.name] : [];
  return [form.script.trim() || "train.py", ...[...names, ...resource].map((name) => `--${name} {${name}}`)].join(" ");
}

/** Whether the schedule decides by a resource how long a trial runs. */
export const hasResource = (form: TuningForm): boolean => !["none", "median"].includes(form.schedule);

const whole = (text: string): number | string => (/^\d+$/.test(text.trim()) ? Number(text) : text);

/** Returns the settings of the study; what the service cannot take it refuses in a sentence. */
export function configOf(form: TuningForm): Record<string, unknown> {
  const budget: Record<string, unknown> = {};
  if (form.trials.trim()) budget["trials"] = whole(form.trials);
  if (form.time.trim()) budget["time"] = form.time.trim();
  const job: Record<string, unknown> = {};
  if (form.workers.trim() !== "1") job["workers"] = whole(form.workers);
  const gpus = Number(form.gpus);
  if (gpus > 0) job["resources"] = { gpus };
  return {
    name: form.name.trim(),
    run: commandOf(form),
    space: spaceOf(form),
    [form.goal]: form.metric.trim(),
    search: form.search,
    schedule: form.schedule,
    ...(hasResource(form) ? { resource: { name: form.resource.name, ...(form.resource.min ? { min: whole(form.resource.min) } : {}), max: whole(form.resource.max) } } : {}),
    budget,
    parallel: whole(form.parallel),
    ...(Object.keys(job).length > 0 ? { job } : {}),
    ...(gpus > 0 ? { gpus } : {}),
  };
}
