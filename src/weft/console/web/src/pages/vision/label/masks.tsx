/** Masks over a picture, on a canvas as large as the picture: pixels are too many for elements. */
import { useEffect, useRef } from "react";
import type { Point, Size } from "../../../vision/geometry";
import { decodeRuns } from "../../../vision/masks";
import type { Shape } from "../../../vision/shapes";
import type { Colours } from "../../../vision/colours";
import css from "./label.module.css";

const OPACITY = 120; // of 255

export function MaskCanvas({ shapes, size, colours, by }: { shapes: readonly Shape[]; size: Size; colours: Colours; by?: Point }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const masked = shapes.filter((shape) => shape.mask);
  // The same masks are the same objects: nothing is painted again for a box that moved.
  const drawn = useRef<readonly Shape[]>([]);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const same = drawn.current.length === masked.length && masked.every((shape, index) => shape === drawn.current[index]);
    if (same && masked.length) return;
    drawn.current = masked;
    context.clearRect(0, 0, size.width, size.height);
    for (const shape of masked) paint(context, shape, colours(shape.label));
  });
  if (masked.length === 0) return null;
  return <canvas ref={canvas} className={css.masks} width={size.width} height={size.height} data-view="picture" style={by && { translate: `calc(${by[0]}px * var(--scale)) calc(${by[1]}px * var(--scale))` }} data-testid="masks" />;
}

function paint(context: CanvasRenderingContext2D, shape: Shape, colour: string): void {
  const bits = decodeRuns(shape.mask!);
  const [left, top, right, bottom] = shape.box.map(Math.round) as [number, number, number, number];
  const [wide, high] = [Math.min(right, bits.width) - left, Math.min(bottom, bits.height) - top];
  if (wide <= 0 || high <= 0) return;
  const image = context.getImageData(left, top, wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) as [number, number, number];
  const value = ((OPACITY << 24) | (blue << 16) | (green << 8) | red) >>> 0; // bytes are red, green, blue, alpha
  for (let x = 0; x < wide; x += 1) {
    for (let y = 0; y < high; y += 1) if (bits.data[(x + left) * bits.height + y + top]) pixels[y * wide + x] = value;
  }
  context.putImageData(image, left, top);
}
