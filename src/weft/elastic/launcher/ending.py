"""The outcome of an elastic run, from what its launcher has heard. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from weft.elastic.membership.endings import FINISHED, PAUSED
from weft.launch.control.outcome import Failure, Outcome


def outcome_of(
    over: str,
    code: int,
    *,
    failures: Sequence[str] = (),
    interrupted: int | None = None,
    seconds: float,
    run_dir: str,
) -> Outcome:
    """Return the outcome of a run that ended like `over`, or with no agent left; `interrupted`: by this signal.

    `failures` are those of workers that came to the end of the run and failed then.
    """
    paused = over == PAUSED.how and interrupted is None
    why = "" if over == FINISHED.how or paused else over or "no agent is left"
    why = why or next(iter(failures), "")
    ended_with = (code or 1) if why else PAUSED.code if paused else 0
    code = ended_with if interrupted is None else 128 + interrupted
    failed = bool(why) and interrupted is None
    return Outcome(
        code=code,
        codes={},
        seconds=round(seconds, 3),
        failure=Failure(rank=None, host="the run", code=code, reason=why) if failed else None,
        interrupted_by=None if interrupted is None else signal.Signals(interrupted).name,
        paused=paused and not failed,
        run_dir=run_dir,
    )
