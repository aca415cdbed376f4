"""Optimizer state that lives on the host, and visits the device for its step.

An optimizer's step goes through its parameters in chunks. A chunk's state, and its parameters and gradients where they
are paged, too, are copied in while the chunk before it is stepped, and back out after it. Of state that is paged alone
the copies start during the backward pass where there is room, as activations leave, and memory is given back when the
next passes need it, and no sooner: then they cost nothing. Every other step goes through the chunks backwards, since
those that were stepped last are the likeliest to be still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from weft.errors import UsageError
from weft.lms.paging.model import Keeper
from weft.lms.paging.page import SMALL, Page, held
from weft.lms.plan.playback import LEAD
from weft.lms.plan.shapes import Shape

CHUNK = 1 << 30  # bytes of state that travel together, at most: to launch less takes as long as to copy it
SHARE = 16  # and no more than this part of the budget
EVERYTHING = 1 << 60
TAKEN = 3.0  # bytes that a step makes and drops again for each byte of parameters, before any was seen
SAFE = 1.1  # times what was seen is counted on


class Pager:
    """Steps an optimizer whose state is on the host."""

    def __init__(self, optimizer: torch.optim.Optimizer, keeper: Keeper, spare: int) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UsageError(
                "paging must be able to step parameters a few at a time, got LBFGS, whose step takes them together; "
                "use another optimizer or wrap the model alone"
            )
        self.optimizer, self.keeper = optimizer, keeper
        self.transfer = keeper.session.transfer
        self.chunk = min(CHUNK, keeper.session.limit // SHARE)
        self.spare = spare  # bytes that a pass may want at any moment
        self.pages: dict[int, list[Page]] = {}  # by parameter
        self._leaving: dict[Page, None] = {}  # state that is here, what was stepped last comes last
        self.leaving = 0  # bytes of it that go when they are asked to
        self.shape: Shape | None = None  # of the passes before the step
        self._taken = TAKEN
        self._peak = 0  # of the last step
        self._marks: list[tuple[Any, Any]] = []  # around the compute of each of its chunks
        self.original = optimizer.step
        self._early: deque[Page] | None = None  # to bring in before the step
        self._reach = 0  # of a step that runs: chunks before this one were brought
        self._busy = 0.0  # until when the link is, by the plan's clock
        self._back = 0.0  # seconds of planned copies back that are in it
        self._first = 0  # bytes that the step's first chunk makes and drops again
        self._backwards = False
        keeper.pager = self

    def room(self) -> int:
        return self.keeper.session.planning.budget - self.transfer.allocated()

    @property
    def lazy(self) -> bool:
        """Whether there is room to spare: memory is given back when it is missed, and no sooner."""
        return self.keeper.parameters is None and self.keeper.gradients is None

    @property
    def bytes(self) -> int:
        """Of all state that is paged."""
        return sum(page.bytes for pages in self.pages.values() for page in pages)

    def chunks(self) -> list[list[torch.nn.Parameter]]:
        """Parameters in the order in which they are stepped next, a chunk's worth of state at a time."""
        found: list[list[torch.nn.Parameter]] = []
        size = self.chunk
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if size >= self.chunk:
                    found.append([])
                    size = 0
                found[-1].append(parameter)
                size += 2 * held(parameter).nbytes
        return found[::-1] if self._backwards else found

    def bring_early(self) -> None:
        """During a pass: what is away, as long as there is room for it and for what is going on."""
        if not self.pages or not self.lazy:
            return
        if self._early is None:
            chunks = self.chunks()
            self._early = deque(page for chunk in chunks for page in self._pages(chunk))
            self._busy = self._back = 0.0
            self._first = self.on_the_way(chunks[0])
        ahead = self.keeper.session.ahead()
        spare = max(self.spare if ahead is None else ahead, self._first)
        while self._early:
            page = self._early[0]
            page.check()
            if not page.here:
                if self.room() < spare + page.bytes or not self._link_is_free(page.bytes):
                    return
                with self.keeper.session.engine.moved_by_others():
                    self.keeper.bring(page)
            self._early.popleft()

    def begin(self) -> None:
        """A pass begins: what came early for another one may have left again."""
        self._early = None

    def _link_is_free(self, size: int) -> bool:
        """Whether so many bytes may come now: activations that the plan brings back soon must not wait behind them."""
        link = self.keeper.session.link(LEAD)
        if link is None:
            return True
        now, back = link
        self._busy = max(self._busy, now) + max(0.0, back - self._back)
        self._back = max(back, self._back)
        if self._busy > now + LEAD:
            return False
        self._busy += size / self.transfer.rates().back
        return True

    def _bring(self, chunk: list[torch.nn.Parameter]) -> None:
        for page in self._pages(chunk):
            page.check()
            self.keeper.bring(page)

    def _pages(self, chunk: list[torch.nn.Parameter]) -> Iterator[Page]:
        for parameter in chunk:
            yield from self.keeper.pages_of(parameter)
            yield from self.pages.get(id(parameter), ())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The optimizer's step, chunk by chunk."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        chunks = self.chunks()
        groups = [(group, group["params"]) for group in self.optimizer.param_groups]
        goes = self.bytes - self.keeper.session.beside(self.shape) if self.pages and self.lazy else EVERYTHING
        taken: list[float] = []
        self._peak, self._marks = 0, []
        try:
            with self.transfer.watching():
                for index, chunk in enumerate(chunks):
                    self._fetch(chunks, index)
                    taken.append(self._step_some(chunk, groups))
                    self._done(chunk, goes > 0)
                    goes -= sum(page.bytes for page in self._pages(chunk))
            self._taken = min(TAKEN, SAFE * max(taken, default=TAKEN))
            self.keeper.session.note(self._peak)
        finally:
            for group, parameters in groups:
                group["params"] = parameters
            self._early, self._reach, self._backwards = None, 0, not self._backwards
            for chunk in chunks:
                for page in self._pages(chunk):
                    page.users = 0
                    page.hide()
        if not self.lazy:
            self.let_go()
        return loss

    def _fetch(self, chunks: list[list[torch.nn.Parameter]], index: int) -> None:
        """A chunk, and those after it where there is room for them, too."""
        chunk = chunks[index]
        for page in self._pages(chunk):
            page.users = 1  # it must not leave before it was stepped
        wanted = self.away(chunk) + self.on_the_way(chunk)
        self._let_others_go(wanted, chunks, index)
        if self.room() < wanted and not self.lazy:
            self.keeper.make_room(wanted)
        self._bring(chunk)
        for ahead in chunks[index + 1 : index + 2]:
            wanted = self.away(ahead) + self.away(chunk) + self.on_the_way(chunk)
            self._let_others_go(wanted, chunks, index)
            if self.room() < wanted:
                return
            self._bring(ahead)
            for page in self._pages(ahead):
                page.users = 1
        if self.lazy:
            self._fetch_more(chunks, index, self.away(chunk) + self.on_the_way(chunk))

    def _fetch_more(self, chunks: list[list[torch.nn.Parameter]], index: int, spare: int) -> None:
        """Keep the link busy while what is here is stepped."""
        self._reach = max(self._reach, index + 2)
        while self._reach < len(chunks):
            chunk = chunks[self._reach]
            if self.room() < spare + self.away(chunk):
                return
            self._bring(chunk)
            self._reach += 1

    def _let_others_go(self, wanted: int, chunks: list[list[torch.nn.Parameter]], index: int) -> None:
        """Room in the midst of a step: what was stepped goes first, what will be stepped last at last."""
        if self.room() >= wanted:
            return
        self._let_state_go(wanted, chunks[:index])
        for keeper in self.keeper.session.keepers:
            if keeper.pager is not None and keeper is not self.keeper:
                keeper.pager.let_go(lambda: self.room() < wanted)
        self._let_state_go(wanted, chunks[:index:-1])

    def _let_state_go(self, wanted: int, chunks: list[list[torch.nn.Parameter]]) -> None:
        for chunk in chunks:
            if self.room() >= wanted:
                return
            for page in self._pages(chunk):
                if page.kind == "state":
                    page.leave()

    def _step_some(
        self, chunk: list[torch.nn.Parameter], groups: list[tuple[dict[str, Any], list[torch.nn.Parameter]]]
    ) -> float:
        """Step a chunk; gives the bytes that this made and dropped again for each byte of its parameters."""
        chosen = {id(parameter) for parameter in chunk}
        for page in self._pages(chunk):
            page.ready()
            page.show()
            # Fused kernels, and whoever writes to `.data`, are not seen to write. Gradients are read alone.
            page.dirty = page.dirty or page.kind != "gradient"
        for group, parameters in groups:
            group["params"] = [parameter for parameter in parameters if id(parameter) in chosen]
        fresh = any(id(parameter) not in self.pages and parameter.grad is not None for parameter in chunk)
        self.transfer.reset_peak()
        before = self.transfer.allocated()
        began = self.transfer.mark()
        self.original()
        self._marks.append((began, self.transfer.mark()))
        peak = self.transfer.peak()
        self._peak = max(self._peak, peak)
        return (
            TAKEN if fresh else (peak - before) / max(1, sum(held(parameter).nbytes for parameter in chunk))
        )

    def seconds(self) -> float:
        """That the last step computed; waits for it."""
        return sum(self.transfer.seconds(*marks) for marks in self._marks)

    def _done(self, chunk: list[torch.nn.Parameter], goes: bool) -> None:
        """What was stepped may leave, and what will have to is sent; state that was just made becomes pages now."""
        for parameter in chunk:
            if id(parameter) not in self.pages and parameter in self.optimizer.state:
                self._adopt(parameter)
        for page in self._pages(chunk):
            if goes:
                page.send()
            page.users = 0
            page.hide()
            if page in self._leaving:
                del self._leaving[page]
                self._leaving[page] = None

    def came(self, page: Page) -> None:
        """State is on the device, whoever brought it."""
        if page not in self._leaving:
            self.leaving += page.bytes
        self._leaving[page] = None

    def went(self, page: Page) -> None:
        if page in self._leaving:
            del self._leaving[page]
            self.leaving -= page.bytes

    def _adopt(self, parameter: torch.Tensor) -> None:
        found = [
            value for value in self.optimizer.state[parameter].values() if isinstance(value, torch.Tensor)
        ]
        parts = [(held(value), value) for value in found]
        self.pages[id(parameter)] = [
            Page(part, self.transfer, self.keeper, "state", whole=None if part is value else value)
            for part, value in parts
            if type(part) is torch.Tensor
            and part.device == self.transfer.device
            and part.nbytes > SMALL
            and part.untyped_storage().nbytes() == part.nbytes
        ]

    def make_room(self, wanted: int | None = None) -> None:
        """Give memory back until so much is free; for a pass, what it may want next. Others' state goes, too."""
        if wanted is None:
            if self.keeper.session.follows:
                return  # event by event
            ahead = self.keeper.session.ahead()
            wanted = self.spare if ahead is None else ahead
        self.keeper.session.let_go(lambda: self.room() < wanted, last=self.keeper)

    def let_go(self, more: Callable[[], bool] = lambda: True) -> None:
        """Give memory back as long as more is wanted, those first that were stepped first; what others hold stays."""
        with self.keeper.session.engine.moved_by_others():
            for page in tuple(self._leaving):
                if not more():
                    return
                page.leave()

    def loaded(self) -> None:
        """Other state was put in the place of ours."""
        self._early = None
        for pages in self.pages.values():
            for page in pages:
                page.forget()
        self.pages.clear()
        for parameter in self.optimizer.state:
            self._adopt(parameter)
        for pages in self.pages.values():
            for page in pages:
                page.send()
                page.hide()
        self.let_go()

    def saved(self, state: dict[str, Any]) -> dict[str, Any]:
        """What `state_dict` gives: copies in host memory of what lives there."""
        pages = {
            id(page.tensor if page.whole is None else page.whole): page
            for pages in self.pages.values()
            for page in pages
        }

        def copied(value: Any) -> Any:
            return pages[id(value)].host_copy() if id(value) in pages else value

        packed = {
            key: {name: copied(value) for name, value in values.items()}
            if isinstance(values, dict)
            else values
            for key, values in state["state"].items()
        }
        return state | {"state": packed}

    def away(self, chunk: list[torch.nn.Parameter]) -> int:
        """Bytes that come before a chunk is stepped: pages on the host, and state that its first step makes."""
        fresh = sum(2 * held(parameter).nbytes for parameter in chunk if id(parameter) not in self.pages)
        return fresh + sum(page.bytes for page in self._pages(chunk) if not page.here)

    def on_the_way(self, chunk: list[torch.nn.Parameter]) -> int:
        """Bytes that its step makes and drops again."""
        return int(self._taken * sum(held(parameter).nbytes for parameter in chunk))
