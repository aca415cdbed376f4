"""Whether a worker's processes compute: from made-up counts, and from a real session with a child that does."""

from __future__ import annotations

import os
import subprocess
import sys

from weft.elastic.agent.activity import WorkerActivity
from weft.launch.agent.processes import SessionUse, session_use


def looks(*uses: SessionUse) -> list[bool]:
    """Look ten times a second."""
    given = iter(uses)
    activity = WorkerActivity(1, read=lambda _: next(given))
    return [activity.look(0.1 * number) for number in range(len(uses))]


def test_a_worker_that_does_nothing_is_found_out_within_a_second() -> None:
    seen = looks(*[SessionUse(3.0, ready=False)] * 10)
    assert seen[:3] == [True] * 3  # it may have paused
    assert seen[-1] is False


def test_a_worker_that_computes_or_would_if_it_could_is_active() -> None:
    assert all(looks(*[SessionUse(0.02 * number, ready=False) for number in range(50)]))
    assert all(looks(*[SessionUse(0.0, ready=True)] * 50))  # no core is free for it


def test_a_thread_that_wakes_now_and_then_is_no_computation() -> None:
    seen = looks(*[SessionUse(0.0, ready=number % 10 == 0) for number in range(60)])
    assert not any(seen[12:])


def test_progress_makes_a_worker_active_again() -> None:
    activity = WorkerActivity(1, read=lambda _: SessionUse(0.0, ready=False))
    assert not [activity.look(0.1 * number) for number in range(10)][-1]
    activity.rest()
    assert activity.look(2.0)


def test_the_children_of_a_worker_count() -> None:
    child = "import os; sum(range(10_000_000)); os.write(1, b'x'); sum(range(10**12))"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        use = session_use(process.pid)
        os.killpg(process.pid, 9)
    assert use.ready
    assert use.seconds > 0.05
