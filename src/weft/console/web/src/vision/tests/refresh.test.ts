// @vitest-environment node
import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, it } from "vitest";
import { invalidateDataset } from "../../api/vision";

it("asks again for what has changed while the first answer was on its way", async () => {
  const client = new QueryClient();
  const answers: ((count: number) => void)[] = [];
  const queryFn = (): Promise<number> => new Promise((done) => answers.push(done));
  const shown = new QueryObserver(client, { queryKey: ["vision", "dataset", "cells"], queryFn });
  const stop = shown.subscribe(() => undefined);
  invalidateDataset(client, "0123");
  await expect.poll(() => answers.length).toBe(2);
  answers[0]!(0); // from before the change
  answers[1]!(90);
  await expect.poll(() => shown.getCurrentResult().data).toBe(90);
  stop();
});
