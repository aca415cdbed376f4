/** Dialogs of the labelling page: the sheet of keys, and labels that two people changed at once. */
import { pictureUrl } from "../../../api/vision";
import { Button, Dialog } from "../../../parts/controls";
import type { Colours } from "../../../vision/colours";
import { KEYMAP, MORE_KEYS, type KeyRow } from "../../../vision/keymap";
import { changesInWords, mergeSheets } from "../../../vision/merge";
import type { Theirs, Unsaved } from "../../../vision/outbox";
import type { Sheet } from "../../../vision/shapes";
import css from "./label.module.css";

const GROUPS: readonly KeyRow["group"][] = ["Tools", "Edit", "Objects", "Pictures", "View"];

export function KeySheet({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys of this page" onClose={onClose} wide>
      <div className={css.sheet}>
        {GROUPS.map((group) => (
          <section key={group} aria-label={group}>
            <h3>{group}</h3>
            <dl>
              {KEYMAP.filter((row) => row.group === group).map((row) => (
                <Row key={row.command} keys={row.keys} text={row.text} />
              ))}
            </dl>
          </section>
        ))}
        <section aria-label="More">
          <h3>More</h3>
          <dl>{MORE_KEYS.map(([keys, text]) => <Row key={keys} keys={[keys]} text={text} />)}</dl>
        </section>
      </div>
    </Dialog>
  );
}

function Row({ keys, text }: { keys: readonly string[]; text: string }) {
  return (
    <>
      <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
      <dd>{text}</dd>
    </>
  );
}

interface ConflictProps {
  pending: Unsaved;
  theirs: Theirs;
  colours: Colours;
  size: { width: number; height: number } | null;
  onResolve: (sheet: Sheet | null) => void;
}

/** Asks what is to be: theirs stays until somebody says otherwise. */
export function ConflictDialog({ pending, theirs, colours, size, onResolve }: ConflictProps) {
  const merged = mergeSheets(pending.base, pending.mine, theirs.sheet);
  return (
    <Dialog
      title="Somebody else changed these labels, too"
      onClose={() => undefined}
      foot={
        <>
          <Button onClick={() => onResolve(null)}>Take theirs</Button>
          <Button onClick={() => onResolve(pending.mine)}>Keep mine</Button>
          <Button kind="primary" onClick={() => onResolve(merged.sheet)}>Keep both</Button>
        </>
      }
    >
      <div className={css.versus}>
        {([["Yours", pending.mine], ["Theirs", theirs.sheet]] as const).map(([title, sheet]) => (
          <figure key={title}>
            {size && (
              <svg viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={`${title}: ${changesInWords(pending.base, sheet)}`}>
                <image href={pictureUrl(pending.file)} width={size.width} height={size.height} />
                {sheet.shapes.map((shape) => (
                  <rect key={shape.id} className={css.shape} x={shape.box[0]} y={shape.box[1]} width={shape.box[2] - shape.box[0]} height={shape.box[3] - shape.box[1]} style={{ "--tone": colours(shape.label) } as React.CSSProperties} />
                ))}
              </svg>
            )}
            <figcaption><b>{title}</b>: {changesInWords(pending.base, sheet)}{sheet.category ? `; category ${sheet.category}` : ""}</figcaption>
          </figure>
        ))}
      </div>
      <p>Keep both puts the changes together; where you both changed the same object, yours is taken.</p>
    </Dialog>
  );
}
