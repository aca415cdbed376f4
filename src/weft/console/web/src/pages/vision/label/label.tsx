/** The labelling page: which picture of which data set is open is in its address, as is the filter of the strip. */
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { useLocation } from "wouter";
import { get } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import { useStream } from "../../../api/stream";
import { datasetPath, fileQuery, useDataset, useFiles } from "../../../api/vision";
import type { VisionFile, VisionFileDetail, VisionFiles } from "../../../api/types";
import { ButtonLink, Segments, tell, tellError, Wrong } from "../../../parts/controls";
import { Empty, Page, Skeleton } from "../../../parts/layout";
import { useParam } from "../../../text/address";
import { visionCommand } from "../places";
import css from "./label.module.css";
import { usePrefetch } from "./prefetch";
import { Strip, stateOf } from "./strip";
import { Workbench } from "./workbench";

const STATES = [["all", "All"], ["unlabelled", "Unlabelled"], ["auto", "Auto"], ["labelled", "Labelled"], ["review", "To review"]] as const;

export default function LabelPage({ dataset, file }: { dataset: string; file: string | undefined }) {
  const [state, setState] = useParam("state", "all");
  const [label] = useParam("label");
  const [query] = useParam("query");
  const [film] = useParam("film");
  const [location, go] = useLocation();
  const data = useDataset(dataset);
  const mayAct = useMayAct();
  const list = useFiles(dataset, { state, label, query, parent: film || undefined });
  const rows = useMemo(() => {
    const found = (list.data?.pages.flatMap((page) => page.files) ?? []).filter((row) => row.kind !== "film");
    return film ? found.sort((a, b) => (a.time_s ?? 0) - (b.time_s ?? 0)) : found; // frames come as they are in their film
  }, [list.data, film]);
  const total = Math.max(rows.length, (list.data?.pages[0]?.total ?? 0));
  const current = file ?? rows[0]?.id ?? "";
  const index = rows.findIndex((row) => row.id === current);
  const detail = useQuery({ ...fileQuery(current), enabled: current !== "", placeholderData: keepPreviousData });
  usePrefetch(index < 0 ? [detail.data?.next ?? undefined, detail.data?.previous ?? undefined] : [rows[index + 1]?.id, rows[index - 1]?.id, rows[index + 2]?.id]);

  // What somebody else saved is seen at once, unless there is something of one's own that waits.
  const client = useQueryClient();
  useStream(["vision"], ({ kind, data: told }) => {
    if (kind !== "vision" || told["dataset"] !== dataset) return;
    const known = client.getQueryData<VisionFileDetail>(fileQuery(current).queryKey);
    if (told["file"] === current && known && Number(told["revision"]) > known.revision) void client.invalidateQueries({ queryKey: fileQuery(current).queryKey });
  });

  const base = `/vision/label/${encodeURIComponent(dataset)}`;
  const link = useCallback((id: string) => `${base}/${encodeURIComponent(id)}${window.location.search}`, [base]);
  const open = useCallback((id: string | undefined) => (id ? go(link(id), { replace: true }) : undefined), [go, link]);
  const fetchMore = useCallback(() => {
    if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage();
  }, [list]);

  async function step(by: 1 | -1): Promise<void> {
    // A picture that is far down the list may not be in what was read of it; its neighbours are known all the same.
    const neighbour = by === 1 ? detail.data?.next : detail.data?.previous;
    const next = index < 0 ? neighbour : rows[index + by]?.id;
    if (next) open(next);
    else if (by === 1 && index >= 0 && list.hasNextPage) {
      const more = await list.fetchNextPage();
      open(more.data?.pages.flatMap((page) => page.files)[index + 1]?.id);
    } else tell(by === 1 ? "this is the last picture" : "this is the first picture");
  }

  async function nextUnlabelled(done: readonly string[]): Promise<void> {
    const free = (row: VisionFile): boolean => row.id !== current && !done.includes(row.id) && stateOf(row) === "unlabelled";
    const here = [...rows.slice(index + 1), ...rows.slice(0, Math.max(0, index))].find(free);
    if (here) return open(here.id);
    try {
      const found = await get<VisionFiles>(datasetPath(dataset, "/files"), { state: "unlabelled", limit: 50 });
      const next = found.files.find((row) => free(row) && row.kind !== "film");
      if (next) open(next.id);
      else tell("every picture has labels");
    } catch (error) {
      tellError(error);
    }
    return undefined;
  }

  const back = `/vision/data/${encodeURIComponent(dataset)}`;
  if (data.error || list.error) return <Page name="Label" title="Label"><Wrong error={data.error ?? list.error} /></Page>;
  if (!data.data || !list.data) return <Page name="Label" title="Label"><Skeleton lines={6} /></Page>;
  const filter = (
    <Segments label="Pictures shown" value={state} options={STATES} onChange={(next) => {
      setState(next);
    }} />
  );
  if (rows.length === 0 && !file)
    return (
      <Page name="Label" title={`Label ${data.data.name}`}>
        {state !== "all" && <div>{filter}</div>}
        <Empty
          title={state === "all" ? "No pictures to label" : "No picture is in this state"}
          text={state === "all" ? "Drop pictures, films or a zip on the page of the data set, or import a folder:" : "Choose another filter above."}
          commands={state === "all" ? [visionCommand(`data import ${data.data.name} PICTURES`)] : []}
        >
          <ButtonLink to={back}>To the data set</ButtonLink>
        </Empty>
      </Page>
    );
  return (
    <div className={css.bench} key={location.startsWith(base) ? dataset : ""}>
      {detail.error ? <div className={css.head}><Wrong error={detail.error} /></div> : null}
      {!detail.data && !detail.error && <div className={css.head}><Skeleton /></div>}
      {detail.data && (
        <Workbench
          dataset={data.data}
          file={detail.data}
          place={index >= 0 ? `${index + 1} of ${total}` : ""}
          back={back}
          mayEdit={mayAct}
          before={(index < 0 ? detail.data.previous : rows[index - 1]?.id) ?? null}
          onStep={(by) => void step(by)}
          onOpen={open}
          onNextUnlabelled={(done) => void nextUnlabelled(done)}
        />
      )}
      <div className={css.foot}>
        {filter}
        <Strip files={rows} total={total} current={current} link={link} more={fetchMore} />
      </div>
    </div>
  );
}
