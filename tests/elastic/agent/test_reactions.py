"""Reactions of an agent to its workers: facts and an event go in, actions come out."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from weft.elastic.agent import reactions
from weft.elastic.agent.actions import (
    AskToLeave,
    Broadcast,
    CheckSoon,
    CountAlarm,
    EndRun,
    GiveUpSlot,
    KillWorker,
    LeadNow,
    MarkBroken,
    MarkCommit,
    MarkEvicted,
    MarkHealed,
    MarkOverMemory,
    MarkRetired,
    MarkScriptEnded,
    MarkScriptIsRun,
    MarkSpared,
    Reaction,
    RenameWorker,
    ReportFailure,
    SendOver,
    SendView,
    SetPorts,
    SetState,
    StartAnother,
    WriteCommit,
    WriteEvent,
)
from weft.elastic.agent.reactions import LIVES, SLOT_TRIES, RunFacts, WorkerFacts
from weft.elastic.history.records import StepRecord
from weft.elastic.launcher.announce import lines_about
from weft.elastic.membership.reports import WorkerState
from weft.elastic.membership.stalls import Stall
from weft.elastic.membership.view import Member, View
from weft.elastic.worker.messages import (
    GroupBroken,
    ReadyToJoin,
    RunRefused,
    ScriptEnded,
    ScriptIsRun,
    StepCommitted,
    WorkerFinished,
    WorkerHealed,
    WorkerHello,
    WorkerLeaving,
    WorkerPaused,
)

STARTING, READY, MEMBER = WorkerState.STARTING, WorkerState.READY, WorkerState.MEMBER
LEAVING, FINISHED = WorkerState.LEAVING, WorkerState.FINISHED
VIEW = View(1, (Member("a/0.0", "a", "a", 0, "", 0, 0),), ("a",))
RUN = RunFacts(VIEW, committed=5)
PID = 7


def worker(state: WorkerState, name: str = "a/0.0") -> WorkerFacts:
    return WorkerFacts(PID, name, state)


def events(actions: tuple[Reaction, ...]) -> list[str]:
    return [action.name for action in actions if isinstance(action, WriteEvent)]


def without_events(actions: tuple[Reaction, ...]) -> list[Reaction]:
    return [action for action in actions if not isinstance(action, WriteEvent)]


# -- messages -----------------------------------------------------------------------------------------


def test_a_worker_that_is_ready_while_the_run_goes_on_is_reported_as_joining() -> None:
    actions = reactions.on_message(worker(STARTING, "a/1.0"), ReadyToJoin(), RUN)
    assert without_events(actions) == [SetState(PID, READY), CheckSoon(), Broadcast()]
    assert events(actions) == ["detected"]
    before = reactions.on_message(worker(STARTING), ReadyToJoin(), RunFacts(View(0, (), ("a",))))
    assert events(before) == []


def test_a_commit_is_written_and_clears_what_failed_before() -> None:
    record = StepRecord(step=4, epoch=0, start=0, stop=8, view=1, parts={"a/0.0": (0,)}, digest="d", t=0.0)
    first = reactions.on_message(worker(MEMBER), StepCommitted(record, first=True), RUN)
    assert without_events(first) == [MarkCommit(PID, 1, 5), WriteCommit(record)]
    assert events(first) == ["stepped"]
    later = reactions.on_message(worker(MEMBER), StepCommitted(record, first=False), RUN)
    assert later == (MarkCommit(PID, 1, 5), WriteCommit(record))


def test_what_a_worker_says_of_itself_is_noted() -> None:
    hello = WorkerHello(1, 2)
    assert reactions.on_message(worker(STARTING), hello, RUN) == (SetPorts(PID, 1, 2),)
    broken = GroupBroken(1, "the link broke")
    assert reactions.on_message(worker(MEMBER), broken, RUN) == (MarkBroken(PID, 1), CheckSoon())
    healed = WorkerHealed(view=1, step=4, bytes=3, seconds=0.5, sources=("b/0.0",))
    facts = {"view": 1, "step": 4, "bytes": 3, "seconds": 0.5, "sources": ("b/0.0",)}
    written = WriteEvent("healed", {"worker": "a/0.0", **facts})
    assert reactions.on_message(worker(MEMBER), healed, RUN) == (MarkHealed(PID, 4), written)


def test_the_first_worker_to_finish_or_to_refuse_ends_the_run() -> None:
    finished = reactions.on_message(worker(MEMBER), WorkerFinished(), RUN)
    assert finished == (SetState(PID, FINISHED), EndRun("finished", 0))
    paused = reactions.on_message(worker(MEMBER), WorkerPaused(7), RUN)
    assert paused == (SetState(PID, FINISHED), EndRun("paused", 75))
    refused = reactions.on_message(worker(MEMBER), RunRefused("no data", 2), RUN)
    assert refused == (EndRun("no data", 2),)


def test_members_of_a_run_that_pauses_end_by_themselves_and_the_others_are_killed() -> None:
    assert reactions.on_run_over([worker(MEMBER), worker(FINISHED)], VIEW, how="paused") == ()
    assert reactions.on_run_over([worker(READY)], VIEW, how="paused") == (KillWorker(PID),)


# -- leaving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [STARTING, READY])
def test_a_worker_that_takes_no_part_yet_goes_at_once_when_asked_and_is_replaced_once(
    state: WorkerState,
) -> None:
    actions = reactions.on_message(worker(state), WorkerLeaving(), RUN)
    assert without_events(actions) == [AskToLeave(PID), CheckSoon(), Broadcast(), KillWorker(PID)]
    assert events(actions) == ["detected"]
    ended = reactions.on_end(worker(LEAVING), -signal.SIGKILL, RUN)
    assert without_events(ended) == [CheckSoon(), StartAnother(PID)]
    assert events(ended) == ["replaced"]
    again = reactions.on_end(replace(worker(LEAVING), replaceable=False), -signal.SIGKILL, RUN)
    assert again == (CheckSoon(),)


def test_a_member_that_is_asked_to_leave_ends_its_step_and_is_asked_once() -> None:
    actions = reactions.on_message(worker(MEMBER), WorkerLeaving(), RUN)
    assert without_events(actions) == [AskToLeave(PID), CheckSoon(), Broadcast()]
    assert reactions.on_message(worker(LEAVING), WorkerLeaving(), RUN) == ()
    over = reactions.on_message(worker(FINISHED), WorkerLeaving(), replace(RUN, over=True))
    assert over == (KillWorker(PID),)


def test_workers_of_slots_that_are_not_wanted_leave_and_are_not_replaced() -> None:
    actions = reactions.on_slots_gone([worker(MEMBER)], VIEW)
    assert without_events(actions) == [MarkRetired(PID), AskToLeave(PID), CheckSoon(), Broadcast()]
    assert events(actions) == ["detected"]
    assert reactions.on_slots_gone([worker(LEAVING)], VIEW) == (MarkRetired(PID),)
    gone = replace(worker(LEAVING), retired=True, replaceable=False)
    assert reactions.on_end(gone, 0, RUN) == (CheckSoon(),)
    late = replace(gone, leaving_s=9.0)
    assert reactions.on_clock([late], VIEW, grace_s=3.0, others_stay=True) == ()


@pytest.mark.parametrize("state", [STARTING, READY])
def test_a_worker_whose_slot_is_not_wanted_before_it_takes_part_is_no_loss(state: WorkerState) -> None:
    assert reactions.on_slots_gone([worker(state)], VIEW) == (MarkRetired(PID), KillWorker(PID))
    ended = replace(worker(state), retired=True, replaceable=False)
    assert reactions.on_end(ended, -signal.SIGKILL, RUN) == (CheckSoon(),)


def test_members_of_a_host_that_is_taken_away_end_their_step_even_if_they_were_to_leave_before() -> None:
    actions = reactions.on_host_leaves([worker(MEMBER)], VIEW)
    assert without_events(actions) == [AskToLeave(PID), CheckSoon(), Broadcast()]
    assert reactions.on_host_leaves([worker(LEAVING)], VIEW) == ()


def test_other_workers_of_such_a_host_are_killed() -> None:
    actions = reactions.on_host_leaves([worker(STARTING), worker(READY)], VIEW)
    assert actions == (KillWorker(PID), KillWorker(PID))


def test_workers_of_a_host_that_is_cut_off_for_long_are_killed_but_those_that_are_done() -> None:
    done = worker(FINISHED)
    assert reactions.on_cut_off([worker(MEMBER), worker(LEAVING), done]) == (KillWorker(PID), KillWorker(PID))


def test_a_member_that_cannot_leave_is_relieved_after_a_while_unless_it_alone_has_the_state() -> None:
    late = replace(worker(LEAVING), leaving_s=4.0)
    relieved = reactions.on_clock([late], VIEW, grace_s=3.0, others_stay=True)
    assert without_events(relieved) == [StartAnother(PID)]
    assert reactions.on_clock([late], VIEW, grace_s=3.0, others_stay=False) == ()
    assert reactions.on_clock([late], VIEW, grace_s=5.0, others_stay=True) == ()
    not_a_member = replace(late, name="a/0.1")
    assert reactions.on_clock([not_a_member], VIEW, grace_s=3.0, others_stay=True) == ()


def test_a_worker_that_is_too_slow_leaves_and_its_slot_stays_empty() -> None:
    actions = reactions.on_too_slow(worker(MEMBER))
    gave_up = GiveUpSlot(PID, "a/0.0 was too slow", 1)
    assert actions == (MarkEvicted(PID, "too slow"), gave_up, AskToLeave(PID))


# -- losses -------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_is_lost_and_another_starts() -> None:
    actions = reactions.on_end(worker(MEMBER), -signal.SIGKILL, RUN)
    assert without_events(actions) == [CheckSoon(), StartAnother(PID), LeadNow()]
    assert events(actions) == ["detected"]


def test_a_stuck_worker_is_killed_and_reported_once() -> None:
    actions = reactions.on_stuck(worker(MEMBER), Stall(2.5), VIEW, may_end=True)
    why = "no progress for 2.5 s"
    assert without_events(actions) == [MarkEvicted(PID, why), CountAlarm(PID), KillWorker(PID)]
    ended = reactions.on_end(replace(worker(MEMBER), evicted=why), -signal.SIGKILL, RUN)
    assert ended == (CheckSoon(), StartAnother(PID), LeadNow())


def test_a_stuck_worker_that_alone_has_the_newest_commit_is_waited_for_and_reported_once() -> None:
    holder = replace(worker(MEMBER), commit=303)
    actions = reactions.on_stuck(holder, Stall(12.0), VIEW, may_end=False)
    assert without_events(actions) == [MarkSpared(PID)]
    (spared,) = [action for action in actions if isinstance(action, WriteEvent)]
    (line,) = lines_about({"event": spared.name, **spared.facts})
    assert line == (
        "a/0.0 makes no progress for 12.0 s; it is waited for, because it alone has the state after 303 steps"
    )
    assert reactions.on_stuck(replace(holder, spared=True), Stall(13.0), VIEW, may_end=False) == ()


def test_a_stuck_worker_that_computes_is_told_of_busy() -> None:
    actions = reactions.on_stuck(worker(MEMBER), Stall(130.0, computes=True), VIEW, may_end=True)
    assert isinstance(actions[0], MarkEvicted)
    assert actions[0].why.startswith("no progress for 130.0 s though it computes; ")
    assert "run.busy()" in actions[0].why


def test_a_slot_whose_workers_never_come_to_a_commit_is_given_up() -> None:
    stuck = replace(worker(MEMBER, "a/0.9"), evicted="no progress for 64.0 s", slot_ends=LIVES - 1)
    _, gave_up, _ = reactions.on_end(stuck, -signal.SIGKILL, RUN)
    why = "10 workers in a row ended without a committed step, the last, a/0.9: no progress for 64.0 s"
    assert gave_up == GiveUpSlot(PID, why, 1)
    before = reactions.on_end(replace(stuck, slot_ends=LIVES - 2), -signal.SIGKILL, RUN)
    assert StartAnother(PID) in before


def test_a_slot_whose_workers_fail_again_and_again_is_given_up() -> None:
    failing = replace(worker(MEMBER), last_error="no such file")
    actions = reactions.on_end(failing, 3, RUN)
    assert without_events(actions) == [CheckSoon(), StartAnother(PID, after_failure=True), LeadNow()]
    last = replace(failing, slot_failures=SLOT_TRIES - 1)
    why = "a/0.0 failed (exit code 3): no such file"
    gave_up = [CheckSoon(), GiveUpSlot(PID, why, 3), LeadNow()]
    assert without_events(reactions.on_end(last, 3, RUN)) == gave_up
    assert (
        without_events(reactions.on_end(failing, 3, RunFacts(VIEW))) == gave_up
    )  # no step was ever committed


def test_a_script_that_ends_before_the_run_is_not_started_again() -> None:
    actions = reactions.on_end(worker(MEMBER), 0, RUN)
    gave_up = GiveUpSlot(PID, "a/0.0 ended before the run did", 0)
    assert without_events(actions) == [CheckSoon(), gave_up, LeadNow()]


def test_a_script_whose_end_is_that_of_the_run_ends_it_and_the_others_end_by_themselves() -> None:
    assert reactions.on_message(worker(STARTING), ScriptIsRun(), RUN) == (MarkScriptIsRun(PID),)
    for state in (STARTING, READY, MEMBER):
        ours = replace(worker(state), script_is_run=True)
        assert reactions.on_end(ours, 0, RUN) == (CheckSoon(), EndRun("finished", 0))
        over = reactions.on_run_over([ours], VIEW, how="finished")
        assert over == (SendOver(PID), SetState(PID, FINISHED))
        assert EndRun("finished", 0) not in reactions.on_end(ours, 1, RUN)
        assert EndRun("finished", 0) not in reactions.on_end(replace(ours, evicted="it is stuck"), 0, RUN)
    assert EndRun("finished", 0) not in reactions.on_end(replace(worker(LEAVING), script_is_run=True), 0, RUN)


def test_an_end_at_the_end_of_the_run_is_no_loss_but_a_failure_is_told() -> None:
    over = replace(RUN, over=True)
    assert reactions.on_end(worker(FINISHED), 0, over) == (CheckSoon(),)
    assert reactions.on_end(worker(MEMBER), -signal.SIGTERM, over) == (CheckSoon(),)
    assert reactions.on_end(worker(MEMBER), 1, replace(RUN, host_leaves=True)) == (CheckSoon(),)
    failed = reactions.on_end(worker(FINISHED), 1, over)
    assert without_events(failed) == [CheckSoon(), ReportFailure("a/0.0 failed (exit code 1)")]
    assert events(failed) == ["failed"]


def test_a_worker_that_is_killed_after_its_script_has_ended_has_not_failed() -> None:
    """Killed before that, it has: its script may have had more to do. So it has if it crashed by itself."""
    over = replace(RUN, over=True)
    ended = replace(worker(FINISHED), script_ended=True)
    assert reactions.on_message(worker(FINISHED), ScriptEnded(), over) == (MarkScriptEnded(PID),)
    assert reactions.on_end(ended, -signal.SIGKILL, over) == (CheckSoon(),)
    assert events(reactions.on_end(worker(FINISHED), -signal.SIGKILL, over)) == ["failed"]
    assert events(reactions.on_end(ended, -signal.SIGSEGV, over)) == ["failed"]
    assert events(reactions.on_end(ended, 1, over)) == ["failed"]


# -- views and the end --------------------------------------------------------------------------------


def test_a_view_reaches_all_workers_that_wait_or_take_part() -> None:
    ready, starting = worker(READY), worker(STARTING)
    assert reactions.on_view([ready, starting], VIEW, urgent=True) == (
        SetState(PID, MEMBER),
        SendView(PID, VIEW, urgent=True),
    )
    assert reactions.on_view([worker(LEAVING)], VIEW, urgent=False) == (SendView(PID, VIEW, urgent=False),)


def test_a_member_that_was_left_behind_may_come_back_under_a_new_name() -> None:
    assert reactions.on_view([worker(MEMBER, "a/0.9")], VIEW, urgent=True) == (
        RenameWorker(PID),
        SetState(PID, STARTING),
        SendView(PID, VIEW, urgent=True),
    )


@pytest.mark.parametrize("state", [MEMBER, LEAVING])
def test_members_exit_by_themselves_when_the_run_is_finished_even_if_they_were_to_leave(
    state: WorkerState,
) -> None:
    actions = reactions.on_run_over([worker(state)], VIEW, how="finished")
    assert actions == (SendOver(PID), SetState(PID, FINISHED))


def test_a_worker_that_was_let_go_and_is_still_there_is_asked_again() -> None:
    actions = reactions.on_run_over([worker(LEAVING, "a/0.1")], VIEW, how="finished")
    assert actions == (KillWorker(PID, signal.SIGTERM),)


def test_when_the_run_fails_members_are_asked_to_end_and_newcomers_are_killed() -> None:
    workers = [worker(MEMBER), worker(READY), worker(STARTING), worker(FINISHED)]
    assert reactions.on_run_over(workers, VIEW, how="no host is left") == (
        KillWorker(PID, signal.SIGTERM),
        KillWorker(PID, signal.SIGKILL),
        KillWorker(PID, signal.SIGKILL),
    )


def test_a_worker_that_holds_too_much_memory_is_killed_and_counts_as_one_that_failed() -> None:
    hog = replace(worker(MEMBER), rank=2)
    why = "out of memory: rank 2 (a/0.0) used 17 GiB, its limit is 16 GiB (--memory)"
    actions = reactions.on_over_memory(hog, 17 << 30, 16 << 30, VIEW)
    assert without_events(actions) == [MarkOverMemory(PID, why), KillWorker(PID)]
    assert events(actions) == ["detected"]
    ended = replace(hog, over_memory=True, evicted=why)
    again = reactions.on_end(ended, -signal.SIGKILL, RUN)
    assert StartAnother(PID, after_failure=True) in again
    assert events(again) == []  # it was told when it was killed
    in_vain = reactions.on_end(ended, -signal.SIGKILL, RunFacts(VIEW, committed=0))
    assert GiveUpSlot(PID, why, 137) in in_vain
    third = reactions.on_end(replace(ended, slot_failures=SLOT_TRIES - 1), -signal.SIGKILL, RUN)
    assert GiveUpSlot(PID, why, 137) in third
