/** Code with line numbers, and differences in unified form: blue came, orange went, for all eyes. */
import css from "./code.module.css";

export function CodeText({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <div className={css.code} tabIndex={0} role="group" aria-label="code">
      <ol>
        {lines.map((line, index) => (
          <li key={index}>{line || " "}</li>
        ))}
      </ol>
    </div>
  );
}

export function diffKind(line: string): "add" | "remove" | "place" | "same" {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("@@")) return "place";
  return line.startsWith("+") ? "add" : line.startsWith("-") ? "remove" : "same";
}

export function DiffText({ text, label }: { text: string; label: string }) {
  return (
    <div className={`${css.code} ${css.diff}`} tabIndex={0} role="group" aria-label={label}>
      <ol>
        {text.replace(/\n$/, "").split("\n").map((line, index) => (
          <li key={index} data-kind={diffKind(line)}>
            {line || " "}
          </li>
        ))}
      </ol>
    </div>
  );
}
