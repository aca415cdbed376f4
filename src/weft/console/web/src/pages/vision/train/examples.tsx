/** What a model finds in pictures that it did not learn from, drawn over them; while it learns, as it becomes better. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { pictureUrl } from "../../../api/vision";
import type { TrainingExample } from "../../../api/types";
import { Card, layout } from "../../../parts/layout";
import { percent } from "../../../text/format";
import { coloursOf } from "../../../vision/colours";
import { readExamples, type Example } from "../../../vision/results";
import css from "./train.module.css";

export function ExamplesCard({ examples, active, dataset, classes }: { examples: readonly TrainingExample[]; active: boolean; dataset: string; classes: readonly string[] }) {
  const document = examples.find((one) => one.name.endsWith(".json"));
  const pictures = examples.filter((one) => !one.name.endsWith(".json"));
  const found = useQuery({
    queryKey: ["vision", "examples", document?.url],
    queryFn: async ({ signal }) => readExamples(await (await fetch(document!.url, { signal })).json()),
    enabled: document !== undefined,
    refetchInterval: active ? 3000 : false,
  });
  const drawn = found.data ?? [];
  const colours = coloursOf(classes.map((name) => ({ name })));
  if (drawn.length + pictures.length === 0) return null;
  return (
    <Card title={active ? "What it finds now" : "What it finds"} extra={<span className={layout.note}>in pictures that it did not learn from</span>}>
      <ul className={css.examples}>
        {drawn.map((one) => <li key={one.picture}><Found example={one} dataset={dataset} colours={colours} /></li>)}
        {pictures.map((one) => <li key={one.name}><img src={one.url} alt={one.name} loading="lazy" /></li>)}
      </ul>
    </Card>
  );
}

function Found({ example, dataset, colours }: { example: Example; dataset: string; colours: (label: string) => string }) {
  const [size, setSize] = useState<{ width: number; height: number } | null>(null);
  const boxes = example.detections ?? [];
  const told = example.category ? `${example.category}, ${percent(example.confidence ?? 0)}` : boxes.length ? `${boxes.length} found` : "nothing found yet";
  return (
    <Link href={`/vision/label/${encodeURIComponent(dataset)}/${encodeURIComponent(example.picture)}`} aria-label={`${example.name}: ${told}`}>
      <span className={css.frame} style={size ? { aspectRatio: `${size.width} / ${size.height}` } : undefined}>
        <img src={pictureUrl(example.picture)} alt="" loading="lazy" onLoad={({ currentTarget: image }) => setSize({ width: image.naturalWidth, height: image.naturalHeight })} />
        {size && (
          <svg viewBox={`0 0 ${size.width} ${size.height}`} className={css.found} aria-hidden="true">
            {boxes.map(({ label, box: [x0, y0, x1, y1] }, index) => <rect key={index} x={x0} y={y0} width={x1 - x0} height={y1 - y0} style={{ "--tone": colours(label) } as React.CSSProperties} />)}
          </svg>
        )}
      </span>
      <small>{told}</small>
    </Link>
  );
}
