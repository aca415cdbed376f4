"""The figures that Weft claims, from benchmarks/results/*.toml, and beside them what was just measured.

    python benchmarks/claims.py                every table
    python benchmarks/claims.py launch lms     some of them
    python benchmarks/claims.py --json         as data; --markdown for the documentation

A benchmark calls `report("launch", {"local": 0.12, ...})` at its end: the same table, with the measured figures first.
"""

from __future__ import annotations

import json
import operator
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.text import format_table

RESULTS = Path(__file__).resolve().parent / "results"
COMPARISONS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One figure with its goal, its rival, and what measured it."""

    name: str
    what: str
    figure: float
    goal: str  # ">= 2", "<= 1.15", or empty where none was set
    rival: str
    date: str
    commit: str
    command: str

    def verdict(self, figure: float | None = None) -> str:
        """Return met or missed, for the recorded figure or another one."""
        if not self.goal:
            return ""
        sign, bound = self.goal.split()
        return (
            "met" if COMPARISONS[sign](self.figure if figure is None else figure, float(bound)) else "missed"
        )


@dataclass(frozen=True)
class Part:
    """The claims of one benchmark, and the machine they were measured on."""

    name: str
    title: str
    machine: str
    claims: tuple[Claim, ...]


def parts(names: Sequence[str] = ()) -> list[Part]:
    """Read the claims of some parts, or of all."""
    known = {path.stem: path for path in sorted(RESULTS.glob("*.toml"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"claims: a part must be one of {', '.join(known)}, got {', '.join(unknown)}")
    return [_read(name, known[name]) for name in names or known]


def _read(name: str, path: Path) -> Part:
    data = tomllib.loads(path.read_text())
    claims = tuple(Claim(**{**row, "date": str(row["date"])}) for row in data["claim"])
    return Part(name, data["title"], data["machine"], claims)


def report(name: str, measured: Mapping[str, float]) -> str:
    """Return the table of one part with the figures that were just measured beside the recorded ones."""
    (part,) = parts([name])
    unknown = set(measured) - {claim.name for claim in part.claims}
    if unknown:
        raise ValueError(f"figures must belong to claims of {name}, got {', '.join(sorted(unknown))}")
    rows = [
        (claim.what, f"{figure:.3g}", claim.goal, claim.verdict(figure), f"{claim.figure:g}", claim.rival)
        for claim in part.claims
        if (figure := measured.get(claim.name)) is not None
    ]
    return f"{part.title}\n" + _table(("what", "measured", "goal", "", "recorded", "rival"), rows)


def text(part: Part) -> str:
    """Return the recorded claims of a part as a text table."""
    return f"{part.title} ({part.machine})\n" + _table(
        ("what", "figure", "goal", "", "rival", "date", "commit", "command"),
        [
            (c.what, f"{c.figure:g}", c.goal, c.verdict(), c.rival, c.date, c.commit, c.command)
            for c in part.claims
        ],
    )


def markdown(part: Part) -> str:
    """Return the recorded claims of a part as a section of the documentation."""
    lines = [f"## {part.title}", "", f"On {part.machine}.", ""]
    lines += [
        "| what | figure | goal | rival | measured by |",
        "|---|---|---|---|---|",
    ]
    for c in part.claims:
        cells = (
            c.what,
            f"**{c.figure:g}**",
            f"{c.goal}, {c.verdict()}" if c.goal else "",
            c.rival,
            f"`{c.command}` on {c.date} at `{c.commit}`",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"{line}\n" for line in format_table((header, *rows), left=header))


def main() -> None:
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    chosen = parts(names)
    if "--json" in sys.argv:
        print(json.dumps([asdict(part) for part in chosen], indent=2))
    elif "--markdown" in sys.argv:
        print("\n".join(map(markdown, chosen)))
    else:
        print("\n".join(map(text, chosen)))


if __name__ == "__main__":
    main()
