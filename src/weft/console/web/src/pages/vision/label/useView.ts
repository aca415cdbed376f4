/** Zoom and pan of the stage. They move elements by themselves: no component is drawn again for them. */
import { useEffect, useLayoutEffect, useMemo, useRef } from "react";
import type { Point, Size } from "../../../vision/geometry";
import { fit, keepInSight, pan, zoomAt, type Viewport } from "../../../vision/viewport";

const SHARP = 3; // CSS pixels a pixel of the picture from which pixels are shown as squares

/** Elements of a stage say by `data-view` how they follow: a picture is moved and scaled, a layer only moved, a group in it scaled. */
type Follows = "picture" | "layer" | "group";

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
  state.current.size = size;
  const view = useMemo<View>(() => {
    const set = (next: Viewport, fitted: boolean): void => {
      state.current.view = next;
      state.current.fitted = fitted;
      place();
    };
    const place = (): void => {
      if (host.current) putInPlace(host.current, state.current.view);
    };
    return {
      now: () => state.current.view,
      room: () => state.current.room,
      zoom: (at, factor) => set(zoomAt(state.current.view, at, factor, state.current.size, state.current.room), false),
      pan: (by) => set(pan(state.current.view, by, state.current.size, state.current.room), false),
      fit: () => set(fit(state.current.size, state.current.room), true),
      place,
    };
  }, [host]);

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

function putInPlace(host: HTMLElement, { x, y, scale }: Viewport): void {
  const moved = `translate(${x}px, ${y}px)`;
  for (const element of host.querySelectorAll<HTMLElement | SVGElement>("[data-view]")) {
    const follows = element.dataset["view"] as Follows;
    if (follows === "group") {
      // A scale that is the same costs nothing: a pan moves the layer as a whole.
      const wanted = `scale(${scale})`;
      if (element.getAttribute("transform") !== wanted) {
        element.setAttribute("transform", wanted);
        element.style.setProperty("--inverse", String(1 / scale));
      }
    } else element.style.transform = follows === "layer" ? moved : `${moved} scale(${scale})`;
    if (follows === "picture") {
      element.toggleAttribute("data-sharp", scale > SHARP);
      element.style.setProperty("--scale", String(scale));
    }
  }
  host.querySelector<HTMLElement>("[data-cross]")?.style.setProperty("--scale", String(scale));
  const told = host.querySelector("output");
  if (told) told.textContent = `${Math.round(scale * 100)} %`;
}
