"""The outcome of a run: which rank failed first, with what, and what a person should look at."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.launch.agent.memory import OUT_OF_MEMORY
from weft.launch.control.escapes import strip_text
from weft.text import plural

_TRACEBACK = "Traceback (most recent call last):"
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
TAIL_CHARACTERS = 64_000  # of a rank's standard error, in which its traceback is looked for
LAST_WORDS_S = 10.0  # between the traceback of a rank and its end

# torch puts this before each line of an uncaught exception once its process group is up.
_RANK_LABEL = re.compile(r"^\[rank\d+\]: ?")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first rank that failed, or the host that was lost."""

    rank: int | None
    host: str
    code: int
    reason: str  # one line: the exception, the signal, or the exit code
    traceback: str | None = None
    log: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run."""

    code: int  # what the launcher exits with
    codes: Mapping[int, int | None]  # each rank's own; None where its host was lost
    seconds: float
    restarts: int = 0
    failure: Failure | None = None
    interrupted_by: str | None = None
    paused: bool = False  # an elastic run that ended at a checkpoint, to be started again
    run_dir: str | None = None

    @property
    def ok(self) -> bool:
        return self.code == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"codes": {str(rank): code for rank, code in self.codes.items()}}


@dataclass
class RankRecord:
    """The facts known of one rank while the run goes on; times are the launcher's."""

    code: int | None = None
    ended_at: float | None = None
    complained_at: float | None = None  # when its last traceback began
    tail: str = ""
    verdict: str = ""  # why it was ended by its agent

    def hear(self, text: str, now: float) -> None:
        """Keep the end of what the rank wrote to its standard error."""
        if _TRACEBACK in text:
            self.complained_at = now
        self.tail = (self.tail + text)[-TAIL_CHARACTERS:]

    @property
    def failed(self) -> bool:
        return self.code not in (None, 0)

    @property
    def failed_at(self) -> float:
        """Return when the trouble began: who raises prints first and ends later, sometimes after those it pulls down.

        A traceback long before the end was one that the program caught, and went on. One that is heard after the end
        was read from its pipe late: the others were told to end meanwhile, so the end itself counts.
        """
        if self.ended_at is None:
            return float("inf")
        if self.complained_at is None or self.ended_at - self.complained_at > LAST_WORDS_S:
            return self.ended_at
        return min(self.complained_at, self.ended_at)


def first_to_fail(records: Mapping[int, RankRecord], stopped_at: float | None) -> int | None:
    """The rank whose trouble began first; those that ended because we asked them to do not count."""
    failed = {
        rank: record
        for rank, record in records.items()
        if record.failed and (stopped_at is None or record.failed_at <= stopped_at)
    }
    return min(failed, key=lambda rank: (failed[rank].failed_at, rank), default=None)


def first_untold(records: Mapping[int, RankRecord]) -> int | None:
    """The first rank of which nobody has told how it ended."""
    return min((rank for rank, record in records.items() if record.code is None), default=None)


def memory_verdict(text: str) -> str:
    """The sentence by which a worker was ended for the memory it held, where its output is all that comes back."""
    found = [line for line in text.splitlines() if line.startswith(f"weft: {OUT_OF_MEMORY}: ")]
    return found[-1].removeprefix("weft: ") if found else ""


def last_traceback(text: str) -> str | None:
    """The last exception in some output, with those it was raised from."""
    lines = [_RANK_LABEL.sub("", line) for line in text.splitlines()]
    starts = [index for index, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return None
    start = starts[-1]
    for earlier in reversed(starts[:-1]):
        between = [line.strip() for line in lines[earlier:start]]
        if not any(chain in between for chain in _CHAINS):
            break
        start = earlier
    end = len(lines)
    for index in range(starts[-1] + 1, len(lines)):
        line = lines[index]
        if line and not line[0].isspace():  # the exception itself; its message may go on below
            end = index + 1
            while (
                end < len(lines)
                and lines[end].strip()
                and not re.match(r"^(\[|W\d{4}|E\d{4}|weft: )", lines[end])
            ):
                end += 1
            break
    return "\n".join(lines[start:end])


def exception_line(traceback: str) -> str:
    """The line of a traceback that names the exception."""
    lines = traceback.splitlines()
    last = max(index for index, line in enumerate(lines) if _TRACEBACK in line)
    return next((line for line in lines[last + 1 :] if line and not line[0].isspace()), lines[-1])


def describe_code(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; was it out of memory? (dmesg tells)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"


def shell_code(code: int) -> int:
    """A child's code as a shell reports it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code


def render_failure(outcome: Outcome) -> str:
    """Return the last screen of a failed run, without what would change a terminal."""
    failure = outcome.failure
    if failure is None and outcome.paused:
        return "weft: paused; start it again with the same --checkpoint to go on"
    if failure is None:
        return f"weft: stopped by {outcome.interrupted_by}" if outcome.interrupted_by else ""
    who = f"rank {failure.rank} on {failure.host}" if failure.rank is not None else failure.host
    lines = [f"weft: failed: {who}: {failure.reason}"]
    if failure.traceback:
        lines += ["", *("    " + line for line in failure.traceback.splitlines()), ""]
    others = sorted(rank for rank, code in outcome.codes.items() if code != 0 and rank != failure.rank)
    if others and failure.rank is not None:
        lines.append(f"weft: rank{'s' * (len(others) > 1)} {', '.join(map(str, others))} ended with it")
    if outcome.restarts:
        lines.append(f"weft: after {plural(outcome.restarts, 'restart')}")
    if failure.log:
        lines.append(f"weft: log {failure.log}")
    return strip_text("\n".join(lines))


def log_path(run_dir: Path | None, rank: int) -> str | None:
    from weft.launch.control.console import log_name

    return str(run_dir / log_name(rank)) if run_dir else None
