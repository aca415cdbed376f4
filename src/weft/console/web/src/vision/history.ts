/** Undo and redo without end: states are kept as a chain that shares all that did not change. */

interface Link<T> {
  readonly state: T;
  readonly before: Link<T> | null;
}

export interface History<T> {
  readonly now: T;
  readonly past: Link<T> | null;
  readonly future: Link<T> | null;
}

export const begin = <T>(now: T): History<T> => ({ now, past: null, future: null });

/** Returns the history after a change; a state that is the same object is no change. */
export function record<T>(history: History<T>, now: T): History<T> {
  return now === history.now ? history : { now, past: { state: history.now, before: history.past }, future: null };
}

export function undo<T>(history: History<T>): History<T> {
  if (!history.past) return history;
  return { now: history.past.state, past: history.past.before, future: { state: history.now, before: history.future } };
}

export function redo<T>(history: History<T>): History<T> {
  if (!history.future) return history;
  return { now: history.future.state, past: { state: history.now, before: history.past }, future: history.future.before };
}

export const mayUndo = (history: History<unknown>): boolean => history.past !== null;
export const mayRedo = (history: History<unknown>): boolean => history.future !== null;

/** Returns the history with every state of it changed alike: what another person did was never mine to undo. */
export function mapHistory<T>(history: History<T>, one: (state: T) => T): History<T> {
  const chain = (link: Link<T> | null): Link<T> | null => {
    const states: T[] = [];
    for (let here = link; here; here = here.before) states.push(one(here.state));
    return states.reduceRight<Link<T> | null>((before, state) => ({ state, before }), null);
  };
  return { now: one(history.now), past: chain(history.past), future: chain(history.future) };
}
