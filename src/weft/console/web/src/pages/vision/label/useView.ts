/** Zoom and pan of the stage. They move elements by themselves: no component is drawn again for them.
 *
 * While the view moves, what is drawn already is moved and stretched by the compositor; it is drawn anew, sharp, when the view rests.
 */
import { useEffect, useLayoutEffect, useMemo, useRef } from "react";
import type { Point, Size } from "../../../vision/geometry";
import { fit, keepInSight, pan, zoomAt, type Viewport } from "../../../vision/viewport";

const SHARP = 3; // CSS pixels a pixel of the picture from which pixels are shown as squares
const REST_MS = 150; // without a zoom or a pan, after which the view rests
const FEW = 150; // shapes of a layer that can be drawn anew in every frame

export interface View {
  readonly now: () => Viewport;
  readonly room: () => Size;
  readonly zoom: (at: Point, factor: number) => void;
  readonly pan: (by: Point) => void;
  readonly fit: () => void;
  /** Puts elements that were drawn since where the view is. */
  readonly place: () => void;
}

export function useView(host: React.RefObject<HTMLDivElement | null>, picture: string, size: Size): View {
  const state = useRef({ view: { x: 0, y: 0, scale: 1 } as Viewport, room: { width: 800, height: 600 } as Size, fitted: true, size });
  const resting = useRef<number | undefined>(undefined); // the timer while the view moves
  state.current.size = size;
  const view = useMemo<View>(() => {
    const place = (): void => {
      if (host.current) putInPlace(host.current, state.current.view, resting.current !== undefined);
    };
    const rest = (): void => {
      window.clearTimeout(resting.current);
      resting.current = undefined;
      place();
    };
    const move = (next: Viewport): void => {
      Object.assign(state.current, { view: next, fitted: false });
      window.clearTimeout(resting.current);
      resting.current = window.setTimeout(rest, REST_MS);
      place();
    };
    return {
      now: () => state.current.view,
      room: () => state.current.room,
      zoom: (at, factor) => move(zoomAt(state.current.view, at, factor, state.current.size, state.current.room)),
      pan: (by) => move(pan(state.current.view, by, state.current.size, state.current.room)),
      fit: () => {
        Object.assign(state.current, { view: fit(state.current.size, state.current.room), fitted: true });
        rest();
      },
      place,
    };
  }, [host]);
  useEffect(() => () => window.clearTimeout(resting.current), []);

  useLayoutEffect(() => {
    const measure = (): void => {
      const { clientWidth: width, clientHeight: height } = host.current!;
      const { room, fitted, size: now, view: old } = state.current;
      if (room.width === width && room.height === height) return;
      state.current.room = { width, height };
      if (fitted) view.fit();
      else {
        state.current.view = keepInSight(old, now, state.current.room);
        view.place();
      }
    };
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(host.current!);
    return () => watcher.disconnect();
  }, [host, view]);
  // Another picture is shown whole; the same one keeps its view when the window changes.
  useLayoutEffect(() => view.fit(), [view, picture, size.width, size.height]);
  useLayoutEffect(() => view.place());

  // React listens to wheels passively: the page would scroll.
  useEffect(() => {
    const stage = host.current!;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const bounds = stage.getBoundingClientRect();
      view.zoom([event.clientX - bounds.left, event.clientY - bounds.top], Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)));
    };
    stage.addEventListener("wheel", wheel, { passive: false });
    return () => stage.removeEventListener("wheel", wheel);
  }, [host, view]);
  return view;
}

/** Elements say by `data-view` how they follow: a picture is moved and scaled, a layer of shapes moved with its one group scaled. */
function putInPlace(host: HTMLElement, exact: Viewport, moving: boolean): void {
  // What moves by whole pixels is copied; by parts of one it would be computed anew.
  const view = moving ? { ...exact, x: Math.round(exact.x), y: Math.round(exact.y) } : exact;
  const { x, y, scale } = view;
  host.toggleAttribute("data-moving", moving);
  for (const layer of host.querySelectorAll<SVGElement>("[data-view=layer]")) placeLayer(layer, view, moving);
  for (const picture of host.querySelectorAll<HTMLElement>("[data-view=picture]")) {
    picture.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    picture.toggleAttribute("data-sharp", scale > SHARP);
    picture.style.setProperty("--scale", String(scale));
  }
  host.querySelector<HTMLElement>("[data-cross]")?.style.setProperty("--scale", String(scale));
  const told = host.querySelector("output");
  const percent = `${Math.round(scale * 100)} %`;
  if (told && told.textContent !== percent) told.textContent = percent;
}

function placeLayer(layer: SVGElement, { x, y, scale }: Viewport, moving: boolean): void {
  const group = layer.firstElementChild as SVGGElement;
  if (!moving || group.childElementCount <= FEW || !layer.dataset["drawn"]) {
    if (layer.dataset["drawn"] !== String(scale)) {
      group.setAttribute("transform", `scale(${scale})`);
      group.style.setProperty("--inverse", String(1 / scale));
      layer.dataset["drawn"] = String(scale);
    }
  }
  layer.style.transform = `translate(${x}px, ${y}px) scale(${scale / Number(layer.dataset["drawn"])})`;
}
