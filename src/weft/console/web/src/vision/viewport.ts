/** Where the picture is on the stage: `screen = offset + scale * picture`, in CSS pixels. */
import type { Point, Size } from "./geometry";

export interface Viewport {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

const MOST = 64; // CSS pixels a pixel of the picture
const MARGIN = 16;

/** Returns the view that shows all of a picture, in the middle; small ones are enlarged eight times at most. */
export function fit(picture: Size, stage: Size): Viewport {
  const room = { width: Math.max(1, stage.width - 2 * MARGIN), height: Math.max(1, stage.height - 2 * MARGIN) };
  const scale = Math.min(room.width / picture.width, room.height / picture.height, 8);
  return { scale, x: (stage.width - picture.width * scale) / 2, y: (stage.height - picture.height * scale) / 2 };
}

export const toPicture = (view: Viewport, at: Point): Point => [(at[0] - view.x) / view.scale, (at[1] - view.y) / view.scale];
export const toScreen = (view: Viewport, at: Point): Point => [at[0] * view.scale + view.x, at[1] * view.scale + view.y];

/** Returns the view after zooming by a factor; the point of the picture under `at` stays there. */
export function zoomAt(view: Viewport, at: Point, factor: number, picture: Size, stage: Size): Viewport {
  const least = Math.min(fit(picture, stage).scale, 1) / 4;
  const scale = Math.min(MOST, Math.max(least, view.scale * factor));
  const [x, y] = toPicture(view, at);
  return keepInSight({ scale, x: at[0] - x * scale, y: at[1] - y * scale }, picture, stage);
}

export function pan(view: Viewport, by: Point, picture: Size, stage: Size): Viewport {
  return keepInSight({ ...view, x: view.x + by[0], y: view.y + by[1] }, picture, stage);
}

/** Returns a view in which a part of the picture can still be seen: nobody loses it by panning. */
export function keepInSight(view: Viewport, picture: Size, stage: Size): Viewport {
  const part = 48;
  const within = (offset: number, long: number, room: number): number => Math.min(room - part, Math.max(part - long, offset));
  return { ...view, x: within(view.x, picture.width * view.scale, stage.width), y: within(view.y, picture.height * view.scale, stage.height) };
}
