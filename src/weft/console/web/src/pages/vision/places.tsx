/** The parts of vision, as tabs above each of its pages. */
import { Tabs } from "../../parts/controls";

const PLACES = [
  { key: "data", text: "Data sets", to: "/vision" },
  { key: "trainings", text: "Trainings", to: "/vision/trainings" },
  { key: "models", text: "Models", to: "/vision/models" },
];

export function VisionTabs({ open }: { open: "data" | "trainings" | "models" }) {
  return <Tabs label="Vision" tabs={PLACES} open={open} />;
}

/** A command of the terminal about this service: without the address it would be about a library on one's own machine. */
export const visionCommand = (words: string): string => `weft vision ${words} --url ${window.location.origin}`;
