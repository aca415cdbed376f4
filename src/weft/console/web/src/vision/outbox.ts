/** Labels on their way to the service: kept in the browser until it has them, tried again while it is away, and never
 * written over somebody else's: a save names the revision that it began from.
 */
import { mergeSheets } from "./merge";
import { sameSheet, type Sheet } from "./shapes";

export interface Unsaved {
  readonly file: string;
  readonly revision: number; // that the changes were made to
  readonly base: Sheet;
  readonly mine: Sheet;
  readonly review: string | null;
}

export interface Theirs {
  readonly revision: number;
  readonly sheet: Sheet;
  readonly review: string | null;
}

export type SaveAnswer = { readonly revision: number } | { readonly conflict: Theirs };
export type SaveState = "saved" | "unsaved" | "saving" | "offline" | "conflict" | "refused";

export interface Shelf {
  keys(): string[];
  get(key: string): string | null;
  set(key: string, value: string): void;
  remove(key: string): void;
}

interface Entry {
  pending: Unsaved;
  sending: boolean;
  dirty: boolean; // changed while it was sent
  theirs: Theirs | null; // where somebody else saved first, and the changes clash
  problem: string | null; // that the service has with it
}

export interface Standing {
  readonly state: SaveState;
  readonly waiting: number; // pictures whose labels the service does not have yet
  readonly conflicts: readonly { readonly pending: Unsaved; readonly theirs: Theirs }[];
  readonly problem: string | null;
}

const DELAY_MS = 400; // after the last change of a picture
const LONGEST_WAIT_MS = 15_000;
const PAUSE_MS = 30; // between looks at a request that is on its way

/** Saves the labels of pictures, one request a picture at a time. */
export class Outbox {
  private readonly entries = new Map<string, Entry>();
  private readonly watchers = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private standing: Standing = { state: "saved", waiting: 0, conflicts: [], problem: null };

  constructor(
    private readonly shelf: Shelf,
    private readonly prefix: string,
    private readonly save: (unsaved: Unsaved) => Promise<SaveAnswer>,
    /** Tells whether an error means that the service could not be reached, so that the same may work later. */
    private readonly away: (error: unknown) => boolean,
    /** Is told when the service has labels of a picture, as merged with others where that was needed. */
    private readonly onSaved: (file: string, revision: number, sheet: Sheet, review: string | null) => void = () => undefined,
    /** Is told when labels of a picture were put together with those that somebody else saved first. */
    private readonly onMerged: (file: string, base: Sheet, theirs: Sheet) => void = () => undefined,
  ) {
    for (const key of shelf.keys().filter((one) => one.startsWith(prefix))) {
      const kept = parse(shelf.get(key));
      if (kept) this.entries.set(kept.file, entry(kept));
    }
    this.tell();
    if (this.entries.size) this.later(0);
  }

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  now = (): Standing => this.standing;

  /** Returns the labels of a picture that are on their way, so that who comes back to it sees them. */
  pending(file: string): Unsaved | null {
    return this.entries.get(file)?.pending ?? null;
  }

  /** Keeps labels to be saved; the first change of a picture sets the revision that they began from. */
  put(unsaved: Unsaved): void {
    const old = this.entries.get(unsaved.file);
    if (!old) this.entries.set(unsaved.file, entry(unsaved));
    else {
      old.pending = { ...old.pending, mine: unsaved.mine, review: unsaved.review };
      old.dirty = old.sending;
      old.problem = null;
    }
    this.keep(unsaved.file);
    this.tell();
    this.later(this.failures ? wait(this.failures) : DELAY_MS);
  }

  /** Saves at once all that waits; resolves when each was tried. */
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    await Promise.all([...this.entries.keys()].map((file) => this.send(file)));
    if (this.failures) this.later(wait(this.failures));
  }

  /** Resolves when the service has all that waited, also what was on its way already: true; or cannot have it now: false. */
  async settled(): Promise<boolean> {
    while (this.entries.size) {
      await this.flush();
      if (this.failures || [...this.entries.values()].some((one) => one.theirs || one.problem)) return false;
      if (this.entries.size) await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
    return true;
  }

  /** Ends a conflict: with labels that are then saved over theirs, or with theirs where `mine` is null. */
  resolve(file: string, mine: Sheet | null): void {
    const found = this.entries.get(file);
    if (!found?.theirs) return;
    const { theirs } = found;
    if (mine === null || sameSheet(mine, theirs.sheet)) {
      this.entries.delete(file);
      this.shelf.remove(this.prefix + file);
      this.onSaved(file, theirs.revision, theirs.sheet, theirs.review);
    } else {
      found.pending = { ...found.pending, revision: theirs.revision, base: theirs.sheet, mine };
      found.theirs = null;
      this.keep(file);
      this.later(0);
    }
    this.tell();
  }

  /** Drops labels that the service refuses. */
  drop(file: string): void {
    this.entries.delete(file);
    this.shelf.remove(this.prefix + file);
    this.tell();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.watchers.clear();
  }

  private later(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.flush(), ms);
  }

  private async send(file: string): Promise<void> {
    const found = this.entries.get(file);
    if (!found || found.sending || found.theirs || found.problem) return;
    const sent = found.pending;
    found.sending = true;
    found.dirty = false;
    this.tell();
    try {
      const answer = await this.save(sent);
      this.failures = 0;
      found.sending = false;
      if ("conflict" in answer) this.meet(file, found, answer.conflict);
      else this.saved(file, found, sent, answer.revision);
    } catch (error) {
      found.sending = false;
      if (this.away(error)) this.failures += 1;
      else found.problem = error instanceof Error ? error.message : String(error);
    }
    this.tell();
  }

  private saved(file: string, found: Entry, sent: Unsaved, revision: number): void {
    this.onSaved(file, revision, sent.mine, sent.review);
    if (found.dirty) {
      found.pending = { ...found.pending, revision, base: sent.mine };
      this.keep(file);
      this.later(DELAY_MS);
    } else {
      this.entries.delete(file);
      this.shelf.remove(this.prefix + file);
    }
  }

  /** Somebody else saved first: changes that do not clash are put together, others are asked about. */
  private meet(file: string, found: Entry, theirs: Theirs): void {
    const merged = mergeSheets(found.pending.base, found.pending.mine, theirs.sheet);
    if (merged.clashes.length) found.theirs = theirs;
    else {
      const { base } = found.pending;
      found.pending = { ...found.pending, revision: theirs.revision, base: theirs.sheet, mine: merged.sheet };
      this.onMerged(file, base, theirs.sheet);
      this.later(0);
    }
    this.keep(file);
  }

  private keep(file: string): void {
    const found = this.entries.get(file);
    if (!found) return;
    try {
      this.shelf.set(this.prefix + file, JSON.stringify(found.pending));
    } catch {
      /* no room in the browser: it is still kept in this page */
    }
  }

  private tell(): void {
    const all = [...this.entries.values()];
    const conflicts = all.flatMap(({ pending, theirs }) => (theirs ? [{ pending, theirs }] : []));
    const problem = all.find((one) => one.problem)?.problem ?? null;
    const state: SaveState = conflicts.length ? "conflict" : problem ? "refused" : all.length === 0 ? "saved"
      : this.failures ? "offline" : all.some((one) => one.sending) ? "saving" : "unsaved";
    this.standing = { state, waiting: all.length, conflicts, problem };
    this.watchers.forEach((watcher) => watcher());
  }
}

const entry = (pending: Unsaved): Entry => ({ pending, sending: false, dirty: false, theirs: null, problem: null });
const wait = (failures: number): number => Math.min(LONGEST_WAIT_MS, 500 * 2 ** Math.min(failures - 1, 5));

function parse(text: string | null): Unsaved | null {
  try {
    const found = JSON.parse(text ?? "null") as Unsaved | null;
    return found && typeof found.file === "string" && typeof found.revision === "number" && Array.isArray(found.mine?.shapes) ? found : null;
  } catch {
    return null;
  }
}

/** The browser's own store. */
export const browserShelf: Shelf = {
  keys: () => {
    try {
      return Object.keys(localStorage);
    } catch {
      return [];
    }
  },
  get: (key) => localStorage.getItem(key),
  set: (key, value) => localStorage.setItem(key, value),
  remove: (key) => localStorage.removeItem(key),
};
