"""Who waits for one operation of a group, and who carries out the next."""

from __future__ import annotations

import threading
from functools import partial

from weft.collectives.groups.work import CollectiveJob, JobQueue

SECONDS = 20.0  # after which something hangs


def test_who_waits_for_a_job_does_not_wait_for_the_next() -> None:
    queue = JobQueue("test")
    begun, go, waited = (threading.Event() for _ in range(3))

    def first() -> None:
        begun.set()
        go.wait(SECONDS)

    jobs = [CollectiveJob(first, []), CollectiveJob(lambda: waited.wait(SECONDS), [])]
    for job in jobs:
        queue.put(job, soon=True)
    assert begun.wait(SECONDS)

    def finish() -> None:
        queue.finish(jobs[0])
        waited.set()

    caller = threading.Thread(target=finish)
    caller.start()
    while jobs[0]._ended is None and caller.is_alive():  # until it waits
        threading.Event().wait(0.001)
    go.set()
    caller.join(SECONDS)
    queue.finish(jobs[1])
    assert jobs[1].result is True
    queue.close()


def test_who_waits_does_what_nobody_else_does() -> None:
    queue = JobQueue("test")
    done: list[int] = []
    jobs = [CollectiveJob(partial(done.append, number), []) for number in range(3)]
    for job in jobs:
        queue.put(job, soon=False)
    queue.finish(jobs[1])
    assert done == [0, 1]
    assert not queue._threads
    queue.finish(jobs[2])
    assert done == [0, 1, 2]
    queue.close()
