# mypy: ignore-errors
"""Worlds of `horovod.torch`: process sets, worlds after worlds, timelines, ranks that are missing."""

import io
import json
import os
import sys
from contextlib import redirect_stderr
from pathlib import Path

import horovod.torch as hvd
import torch
from checks import check, mine, raises, same
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import get_process_set_ids_and_ranks

SCRATCH = Path(sys.argv[1])

R, N = hvd.rank(), hvd.size()


@check
def process_sets():
    raises(ValueError, lambda: hvd.add_process_set([0]), "HOROVOD_DYNAMIC_PROCESS_SETS")
    assert hvd.global_process_set.size() == N
    assert hvd.global_process_set.rank() == R
    assert get_process_set_ids_and_ranks()[0] == list(range(N))


@check
def sets_of_a_new_world():
    hvd.shutdown()
    raises(ValueError, hvd.rank, "use hvd.init()")
    raises(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1)), "use hvd.init()")
    first = hvd.ProcessSet([0])
    assert first.process_set_id is None
    assert first.size() is None
    raises(ValueError, lambda: hvd.init(process_sets=[[0], hvd.ProcessSet([0])]))
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    if N == 1:
        hvd.init()
        return
    others = hvd.ProcessSet(range(1, N))
    hvd.init(process_sets=[first, others])
    assert (first.process_set_id, others.process_set_id) == (1, 2)
    assert others.size() == N - 1
    assert others.included() == (R > 0)
    if R > 0:
        same(hvd.allreduce(torch.tensor([float(R)]), op=hvd.Sum, process_set=others), [sum(range(N))])
        same(hvd.broadcast(mine(1), 1, process_set=others), [2.0])
        assert others.rank() == R - 1
        raises(ValueError, lambda: hvd.broadcast(mine(1), 0, process_set=others))
    else:
        raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=others), "must be in")
        same(hvd.allgather(torch.ones(2), process_set=first), [1.0, 1.0])
    # Sets do different numbers of unnamed operations, and the world goes on.
    same(hvd.allreduce(torch.ones(1), op=hvd.Sum), [N])
    raises(ValueError, lambda: hvd.add_process_set([0]), "there already")
    raises(ValueError, lambda: hvd.add_process_set(range(N)), "there already")
    assert hvd.remove_process_set(first) is True
    ranks = [0] if N == 2 else [0, 1]
    both = hvd.add_process_set(ranks)
    assert both.process_set_id == 3
    if both.included():
        same(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=both), [len(ranks)])
    assert hvd.remove_process_set(both) is True
    assert both.process_set_id is None
    assert hvd.remove_process_set(both) is False
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=both))
    hvd.barrier()


@check
def many_worlds():
    for number in range(4):
        hvd.shutdown()
        hvd.shutdown()
        hvd.init()
        same(hvd.allreduce(torch.tensor([float(number)])), [float(number)])


@check
def timelines():
    path = SCRATCH / f"timeline-{R}.json"
    hvd.start_timeline(str(path), mark_cycles=True)
    hvd.barrier()
    hvd.allreduce(torch.ones(2), name="timed")
    hvd.stop_timeline()
    if R == 0:
        events = json.loads(path.read_text())
        rows = {event["args"]["name"] for event in events if event.get("name") == "process_name"}
        assert "allreduce.timed" in rows
        names = [event.get("name") for event in events]
        assert "NEGOTIATE_ALLREDUCE" in names
        assert "ALLREDUCE" in names
        assert "CYCLE_START" in names
        assert {str(rank) for rank in range(N)} <= set(names)


@check
def who_is_missing_is_named():
    if N == 1:
        return
    hvd.shutdown()
    os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "0.2"
    hvd.init()
    told = io.StringIO()
    with redirect_stderr(told):
        import logging

        handler = logging.StreamHandler(told)
        logging.getLogger("horovod").addHandler(handler)
        if R == 0:
            handle = hvd.allreduce_async(torch.ones(1), name="waited.for")
            while "waited.for" not in told.getvalue():
                hvd.poll(handle)
        hvd.barrier()
        if R > 0:
            handle = hvd.allreduce_async(torch.ones(1), name="waited.for")
        hvd.synchronize(handle)
        logging.getLogger("horovod").removeHandler(handler)
    if R == 0:
        assert "rank 1: allreduce.waited.for" in told.getvalue()
    del os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"]


@check
def a_rank_that_waits_names_who_is_missing():
    """Rank 0 waits in a synchronous call; rank 1 comes once rank 0 has told that it is missing."""
    if N == 1:
        return
    hvd.shutdown()
    os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "0.2"
    hvd.init()
    import logging

    told = SCRATCH / f"told.{N}"

    class ToFile(logging.Handler):
        def emit(self, record):
            if "rank 1: allreduce.in.vain" in record.getMessage():
                told.touch()

    handler = ToFile()
    logging.getLogger("horovod").addHandler(handler)
    while R == 1 and not told.exists():
        os.sched_yield()
    same(hvd.allreduce(torch.ones(1), name="in.vain", op=hvd.Sum), [float(N)])
    logging.getLogger("horovod").removeHandler(handler)
    del os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"]


@check
def small_names_that_scripts_import():
    from horovod.common import util
    from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

    assert [util.num_rank_is_power_2(count) for count in (0, 1, 2, 3, 4)] == [False, True, True, False, True]
    assert (util.mpi_built(), util.gloo_built(), util.ddl_built(), util.ccl_built()) == (
        False,
        True,
        False,
        False,
    )
    assert util.nccl_built() == hvd.nccl_built()
    with util.env(WEFT_SURFACE="1", WEFT_OTHER=None):
        assert os.environ["WEFT_SURFACE"] == "1"
    assert "WEFT_SURFACE" not in os.environ
    assert util.is_version_greater_equal_than("2.10.1", "2.9.0")
    assert not util.is_version_greater_equal_than("2.9.0", "2.10.0")
    raises(ValueError, lambda: util.is_version_greater_equal_than("2.9.0", "2.10"))
    assert util.is_iterable("a")
    assert not util.is_iterable(1)
    error = HorovodVersionMismatchError("torch", "2", "1")
    assert str(error) == get_version_mismatch_message("torch", "2", "1")
