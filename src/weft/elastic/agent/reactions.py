"""What an agent does about the workers of its own host: it hears them, sees them off, and has them replaced."""

from __future__ import annotations

import signal
from typing import Protocol

from weft.elastic.agent.journal import Journal
from weft.elastic.agent.launcher_link import Spoken
from weft.elastic.agent.peers import Message
from weft.elastic.agent.process import FINISHED, LEAVING, MEMBER, READY, STARTING, Ward
from weft.elastic.agent.workers import Household, why
from weft.elastic.membership.view import View
from weft.elastic.timing import Timing
from weft.launch.control.outcome import describe_code


class Duty(Protocol):
    """The agent that watches: what it knows of the run, and what it is told."""

    over: str  # how the run ended; empty while it goes on
    leaving: bool  # our host is taken away

    @property
    def view(self) -> View: ...
    def others_stay(self) -> bool:
        """Whether a member is not about to leave, here or elsewhere."""
        ...

    def end(self, how: str, code: int = 1) -> None: ...
    def look_soon(self) -> None:
        """Something has changed."""
        ...

    def tell_all(self) -> None:
        """The other agents should know at once."""
        ...

    def act_now(self) -> None:
        """A worker is lost: no time is to be lost as well."""
        ...


class Watch:
    """Over the workers of one host."""

    def __init__(self, spec: Message, duty: Duty, journal: Journal, launcher: Spoken, timing: Timing) -> None:
        self._duty, self._journal, self._launcher, self._timing = duty, journal, launcher, timing
        self._grace_s: float = spec["grace"]
        self.household = Household(spec, self, journal, launcher)
        self.committed = 0  # steps, as far as we know

    def turn(self) -> None:
        """What is due by the clock."""
        over = bool(self._duty.over) or self._duty.leaving
        self.household.restart(wanted=not over)
        self._look_for_the_stuck()
        if not over:
            self._relieve()

    def adopt(self, view: View, *, urgent: bool) -> None:
        """A view is decided: tell them."""
        for ward in self.household:
            if not ward.alive or ward.state == STARTING:
                continue
            if view.rank_of(ward.name) is not None:
                if ward.state != LEAVING:
                    ward.state = MEMBER
            elif ward.state == MEMBER:
                # The others went on without it: it may come back as somebody new.
                self.household.rename(ward)
                ward.state = STARTING
            ward.tell({"do": "view", "view": view.to_json(), "name": ward.name, "urgent": urgent})

    def dismiss(self, *, finished: bool) -> None:
        """The run is over: those who are done go by themselves, the others are asked to, or ended."""
        for ward in self.household:
            # One that is to leave and has not been let go yet is done with all the others.
            leaving = ward.state == LEAVING and self._duty.view.rank_of(ward.name) is not None
            if finished and (ward.state == MEMBER or leaving):
                ward.tell({"do": "over"})
                ward.state = FINISHED
            elif ward.state != FINISHED:
                ward.kill(signal.SIGKILL if ward.state in (STARTING, READY) else signal.SIGTERM)

    # -- what they say ----------------------------------------------------------------------------

    def said(self, ward: Ward, news: Message) -> None:
        """A worker said something."""
        match news.pop("say"):
            case "hello":
                ward.ports = news["store_port"], news["heal_port"]
            case "header":
                self._journal.header(news["header"])
            case "ready":
                ward.state = READY
                if self._duty.view.members:
                    self._detected("join", ward, "it is ready")
                self._duty.look_soon()
                self._duty.tell_all()
            case "broken":
                ward.breaks(news["view"])
                self._duty.look_soon()
            case "leaving":
                if self._duty.over:  # it has nothing of its own to do when it is ended
                    ward.kill()
                elif ward.state != LEAVING:
                    waits = ward.state != MEMBER
                    self._see_off(ward, "asked to leave")
                    if waits:  # it has no step to end, and might hear of no further view
                        ward.kill()
            case "commit":
                self._committed(ward, news)
            case "refused":
                self._duty.end(news["why"], news["code"])
            case "finished":
                ward.state = FINISHED
                self._duty.end("finished", 0)
            case ("grouped" | "healed" | "saved") as event:
                self._journal.event(event, worker=ward.name, **news)

    def _committed(self, ward: Ward, news: Message) -> None:
        record = news["record"]
        self.committed = max(self.committed, record["step"] + 1)
        self.household.committed(ward)
        ward.stepped = record["view"]
        if news["first"]:
            self._journal.event("stepped", view=record["view"], worker=ward.name, step=record["step"])
        self._journal.commit(record)

    # -- leaving ----------------------------------------------------------------------------------

    def take_away(self) -> None:
        """All leave, at the end of the step if they take part."""
        for ward in self.household:
            if ward.state == MEMBER:
                self._see_off(ward, "its host is taken away")
            elif ward.state not in (LEAVING, FINISHED):
                ward.kill()

    def end_slow(self, worker: str) -> None:
        """One was too slow: it leaves, and nobody follows it."""
        for ward in self.household:
            if ward.name == worker and ward.alive:
                ward.evicted = "too slow"
                self.household.give_up(ward, f"{worker} was too slow")
                ward.ask_to_leave()

    def _see_off(self, ward: Ward, cause: str) -> None:
        self._detected("leave", ward, cause)
        ward.ask_to_leave()
        self._duty.look_soon()
        self._duty.tell_all()

    def _relieve(self) -> None:
        """Who would leave too few behind goes when another is there; the last that has the state does not go at all."""
        view = self._duty.view
        for ward in self.household:
            due = ward.leaving_s > self._grace_s and view.rank_of(ward.name) is not None
            if due and self._duty.others_stay():
                self._replace(ward)

    def _replace(self, ward: Ward) -> None:
        """It was asked to leave, and its host stays: so does its place."""
        if self.household.replace(ward):
            self._journal.event("replaced", worker=ward.name, cause="its host is still wanted")

    # -- losses -----------------------------------------------------------------------------------

    def _look_for_the_stuck(self) -> None:
        for ward, idle_s in self.household.stuck(self._timing):
            ward.evicted = f"no progress for {idle_s:.1f} s"
            self._detected("stuck", ward, ward.evicted)
            ward.kill()

    def _detected(self, kind: str, ward: Ward, cause: str) -> None:
        self._journal.event("detected", view=self._duty.view.number, kind=kind, who=[ward.name], cause=cause)

    def ended(self, ward: Ward, code: int, state: str) -> None:
        """A worker has ended."""
        self._duty.look_soon()
        if state == FINISHED or self._duty.over:
            if code and state == FINISHED:
                self._journal.event("failed", worker=ward.name, cause=describe_code(code))
                self._launcher.say({"event": "failed", "why": why(ward, code)})
            return
        if self._duty.leaving:
            return
        if state == LEAVING:
            self._replace(ward)
            return
        if not ward.evicted:
            cause = describe_code(code) if code else "its script has ended"
            self._detected("death" if code else "leave", ward, cause)
        self.household.follow(ward, code, in_vain=not self.committed)
        self._duty.act_now()
