/** Colours of labels over pictures: those of the data set, else a palette that keeps apart on dark and bright pictures. */
const PALETTE = ["#ffb000", "#2fa8ff", "#ff5c3a", "#2ed3a0", "#e58cff", "#ffe14d", "#8f9bff", "#ff7fb0", "#9be15d", "#6fe3ff"];

export type Colours = (label: string) => string;

/** Returns the colour of each label; one that the data set does not know gets one by its name. */
export function coloursOf(labels: readonly { readonly name: string; readonly colour?: string | null | undefined }[]): Colours {
  const known = new Map(labels.map(({ name, colour }, index) => [name, colour && /^#[0-9a-f]{6}$/i.test(colour) ? colour : PALETTE[index % PALETTE.length]!]));
  return (label) => known.get(label) ?? PALETTE[[...label].reduce((sum, letter) => sum + letter.codePointAt(0)!, labels.length) % PALETTE.length]!;
}
