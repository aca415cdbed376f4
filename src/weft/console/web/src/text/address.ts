/** The view is in the address: filters, tabs and zoom are search parameters, and links to them work. */
import { useCallback } from "react";
import { useSearchParams } from "wouter";

/** Returns one search parameter and what sets it; the default is not written into the address. */
export function useParam(name: string, standard: string = ""): [string, (value: string) => void] {
  const [params, setParams] = useSearchParams();
  const value = params.get(name) ?? standard;
  const set = useCallback(
    (next: string) =>
      setParams(
        (old) => {
          const fresh = new URLSearchParams(old);
          if (next === standard || next === "") fresh.delete(name);
          else fresh.set(name, next);
          return fresh;
        },
        { replace: true },
      ),
    [name, standard, setParams],
  );
  return [value, set];
}

/** Sets several parameters at once; an empty value takes one away. */
export function useSetParams(): (changes: Record<string, string>) => void {
  const [, setParams] = useSearchParams();
  return useCallback(
    (changes) =>
      setParams(
        (old) => {
          const fresh = new URLSearchParams(old);
          for (const [name, value] of Object.entries(changes)) {
            if (value === "") fresh.delete(name);
            else fresh.set(name, value);
          }
          return fresh;
        },
        { replace: true },
      ),
    [setParams],
  );
}
