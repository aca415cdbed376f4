"""The report as one HTML page: tables and pictures, nothing loaded from elsewhere, on light pages and dark ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from weft.auto.explaining import FOUR_FIFTHS, Explanation
from weft.auto.findings import DRIFT_AUC, LEAK
from weft.auto.model import AutoModel, board_table
from weft.auto.report.pictures import calibration_picture, dependence_picture, importance_picture

MOST_MODELS = 25
_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #222222; --soft: #5f5f5f; --line: #e2e2e2; --warn: #fff4e0 }
@media (prefers-color-scheme: dark) {
:root { --page: #16181c; --ink: #ececec; --soft: #a9adb3; --line: #2f343b; --warn: #3a2f18 }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1080px; padding: 24px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 19px; margin: 36px 0 8px }
p { margin: 6px 0; max-width: 76ch } .soft { color: var(--soft) }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0 }
.figures div { border: 1px solid var(--line); border-radius: 8px; padding: 10px 16px }
.figures b { display: block; font-size: 22px } .warn { background: var(--warn); border-radius: 6px; padding: 6px 12px }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap }
th.left, td.left { text-align: left } td.text { white-space: normal; min-width: 220px }
th { color: var(--soft); font-weight: 500 }
.pictures { display: flex; flex-wrap: wrap; gap: 10px } svg { max-width: 100%; height: auto }
@media print { h2 { break-after: avoid } svg, tr { break-inside: avoid } body { max-width: none } }
"""


def report_html(model: AutoModel, notes: Sequence[str] = ()) -> str:
    """Return the whole page of a model."""
    parts = [*_head(model, notes), *_findings(model), *_board(model), *_columns(model)]
    if model.explanation is not None:
        parts += _explained(model, model.explanation)
    body = "\n".join(parts)
    title = escape(f"weft auto: {model.task.target}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _table(rows: Sequence[Sequence[str]], left: Iterable[str] = (), text: Iterable[str] = ()) -> str:
    """Return a table, of which the first row holds the heads."""
    heads, begins, prose = rows[0], set(left), set(text)

    def cell(tag: str, head: str, content: str) -> str:
        classes = [name for name, those in (("left", begins | prose), ("text", prose)) if head in those]
        mark = f' class="{" ".join(classes)}"' if classes else ""
        return f"<{tag}{mark}>{escape(content)}</{tag}>"

    lines = [
        "<tr>"
        + "".join(cell("th" if not number else "td", *both) for both in zip(heads, row, strict=True))
        + "</tr>"
        for number, row in enumerate(rows)
    ]
    return '<div class="wide"><table>' + "\n".join(lines) + "</table></div>"


def _head(model: AutoModel, notes: Sequence[str]) -> list[str]:
    task = model.task
    what = "a number" if task.classes is None else f"{len(task.classes)} classes"
    figures = {f"{task.metric}, held out": f"{model.score:.5g}"}
    if model.explanation is not None:
        extra = {name: score for name, score in model.explanation.scores.items() if name != task.metric}
        figures |= {f"{name}, held out": f"{score:.5g}" for name, score in extra.items()}
    figures |= {"rows": f"{model.rows:,}", "models judged": str(len(model.leaderboard) - 2)}
    shown = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in figures.items())
    said = f"Predicts {task.target}: {what}. Validation {model.validation}; a fifth of the rows was held out."
    return [
        f"<h1>{escape(task.target)}</h1>",
        f'<p class="soft">{escape(said)}</p>',
        f'<div class="figures">{shown}</div>',
        *(f'<p class="soft">{escape(note)}</p>' for note in notes),
    ]


def _findings(model: AutoModel) -> list[str]:
    rule = (
        f"A column leaks where it alone predicts the target with AUC or R² of at least {LEAK}; rows drift where a "
        f"model tells them from the others with an AUC of at least {DRIFT_AUC}."
    )
    said = [f'<p class="warn">{escape(finding.sentence)}</p>' for finding in model.findings]
    return ["<h2>Warnings</h2>", *(said or ["<p>None.</p>"]), f'<p class="soft">{escape(rule)}</p>']


def _board(model: AutoModel) -> list[str]:
    rows = board_table(model.leaderboard, MOST_MODELS)
    said = (
        "Scores are cross-validated, on rows that the model was not trained on; the choice of models saw them. "
        "Held-out scores are of rows that no choice has seen. The model that is kept was fitted to all rows afterwards."
    )
    return ["<h2>Leaderboard</h2>", _table(rows, left=("model", "parameters")), f'<p class="soft">{said}</p>']


def _columns(model: AutoModel) -> list[str]:
    rows = [["column", "role", "distinct", "missing", "found from"]]
    rows += [
        [role.name, role.role, f"{role.distinct:,}", f"{role.missing_share:.1%}", role.why]
        for role in model.columns
    ]
    return ["<h2>Columns</h2>", _table(rows, left=("column", "role", "found from"))]


def _explained(model: AutoModel, found: Explanation) -> list[str]:
    kinds = model.kinds
    means = [mean for one in found.dependence for mean in one.means]
    span = (min(means, default=0.0), max(means, default=1.0))
    curves = [dependence_picture(one, kinds[one.column], span) for one in found.dependence if one.values]
    return [
        "<h2>What matters</h2>",
        f"<p>Mean absolute Shapley values of columns, of the {escape(found.output)}.</p>",
        importance_picture(found.importance, found.output),
        "<h2>Partial dependence</h2>",
        f"<p>The mean {escape(found.output)} where a column has one value in all rows.</p>",
        f'<div class="pictures">{"".join(curves)}</div>',
        *_judgement(model, found),
        *_groups(found),
        *_reasons(found),
    ]


def _judgement(model: AutoModel, found: Explanation) -> list[str]:
    classes = model.task.classes
    if classes is None:
        return []
    parts = ["<h2>Calibration</h2>", calibration_picture(found.calibration)]
    if len(classes) <= 20:
        head = ["is \\ predicted", *map(str, classes)]
        rows = [[str(name), *map(str, counts)] for name, counts in zip(classes, found.confusion, strict=True)]
        parts += ["<h2>Confusion</h2>", _table([head, *rows], left=(head[0],))]
    return parts


def _groups(found: Explanation) -> list[str]:
    if not found.groups:
        return []
    rows = [["column", "group", "rows", "rate", "ratio", "loss", "below four fifths"]]
    rows += [
        [one.column, one.group, str(one.rows), f"{one.rate:.3f}", f"{one.ratio:.3f}", f"{one.loss:.4g}",
         "yes" if one.warned else ""]
        for one in found.groups
    ]  # fmt: skip
    said = (
        f"The rate is that of the last class, or of predictions above the median; the ratio compares it with the group "
        f"of the largest rate. A ratio below {FOUR_FIFTHS} is disparate impact by the four-fifths rule."
    )
    return ["<h2>Groups</h2>", _table(rows, left=("column", "group")), f'<p class="soft">{said}</p>']


def _reasons(found: Explanation) -> list[str]:
    rows = [["held-out row", "predicted", "base", "reasons"]]
    for one in found.rows[:20]:
        said = "; ".join(f"{reason.column} = {reason.value} ({reason.effect:+.3g})" for reason in one.reasons)
        rows.append(
            [str(one.row), f"{one.predicted:.4g}", f"{one.base:.4g}", f"{said}; all others ({one.rest:+.3g})"]
        )
    return [
        "<h2>Reasons of single predictions</h2>",
        f"<p>The base and all effects add up to the predicted {escape(found.output)}.</p>",
        _table(rows, text=("reasons",)),
    ]
