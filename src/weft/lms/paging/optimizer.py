"""Pages of optimizer state: it lives on the host, and visits the device for the optimizer's step.

The optimizer's step goes through its parameters in chunks. A chunk's state, and its parameters and gradients where
these are paged, too, are copied in while the chunk before it is stepped, and back out after it. Where state alone is
paged, the copies start during the backward pass as activations leave room, and memory is given back when the next
passes need it, and no sooner: then copies cost nothing. Every other step goes through the chunks backwards, since those
that were stepped last are the likeliest to be still on the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from weft.errors import UsageError
from weft.lms.device.torch_private import local_part
from weft.lms.paging.page import Page
from weft.lms.paging.traffic import KindWatcher, PageTraffic
from weft.lms.planning.shapes import StepShape

EVERYTHING = 1 << 60  # bytes
Chunk = list[nn.Parameter]  # parameters that are stepped together


class StatePages:
    """The pages of one optimizer's state, and the step that brings them to the device and lets them leave."""

    def __init__(self, optimizer: torch.optim.Optimizer, traffic: PageTraffic) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UsageError(
                "paging must be able to step parameters a few at a time, got LBFGS, whose step takes them together; "
                "use another optimizer or wrap the model alone"
            )
        self.optimizer, self.traffic = optimizer, traffic
        self.budget, self.transfer, self.tuning = traffic.budget, traffic.transfer, traffic.tuning
        limit = self.budget.limit
        self.chunk_bytes = min(self.tuning.chunk_bytes, limit // self.tuning.chunk_share)
        self.spare = int(self.tuning.pass_spare_share * limit)  # bytes that a pass may want at any moment
        self.pages: dict[int, list[Page]] = {}  # by the parameter's id
        self._on_device: dict[Page, None] = {}  # the page that was stepped last comes last
        self.shape: StepShape | None = None  # of the passes before the step
        self._temporaries = (
            self.tuning.step_temporaries
        )  # bytes that a step makes and drops, per byte of parameters
        self._peak = 0  # bytes, of the last step
        self._marks: list[tuple[Any, Any]] = []  # around the compute of each chunk of the last step
        self.original = optimizer.step
        self._early: deque[Page] | None = None  # pages to bring in before the step
        self._reach = 0  # while a step runs: chunks before this one were brought
        self._link_busy_until = 0.0  # by the plan's clock
        self._planned_link_s = 0.0  # seconds of planned copies back that are counted in it
        self._first_temporaries = 0  # bytes that the step of the first chunk makes and drops
        self._backwards = False  # the next step goes through the chunks from the last to the first
        traffic.usage.release_state = self.let_go
        traffic.watchers["state"] = KindWatcher(self._came, self._went)

    @property
    def lazy(self) -> bool:
        """Whether state alone is paged: then its memory is given back when it is missed, and no sooner."""
        return not self.traffic.usage.pages_parameters and not self.traffic.usage.pages_gradients

    @property
    def bytes(self) -> int:
        """The bytes of all state that is paged."""
        return sum(page.bytes for pages in self.pages.values() for page in pages)

    def chunks(self) -> list[Chunk]:
        """Return the parameters in chunks, in the order in which they are stepped next."""
        found: list[Chunk] = []
        size = self.chunk_bytes
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if size >= self.chunk_bytes:
                    found.append([])
                    size = 0
                found[-1].append(parameter)
                size += self._expected_state(parameter)
        return found[::-1] if self._backwards else found

    def bring_early(self) -> None:
        """Bring state in during a pass, as long as there is room for it besides the pass, and time on the link."""
        if not self.pages or not self.lazy:
            return
        if self._early is None:
            chunks = self.chunks()
            self._early = deque(page for chunk in chunks for page in self._pages(chunk))
            self._link_busy_until = self._planned_link_s = 0.0
            self._first_temporaries = self.temporaries(chunks[0])
        ahead = self.traffic.step.bytes_ahead()
        spare = max(self.spare if ahead is None else ahead, self._first_temporaries)
        while self._early:
            page = self._early[0]
            page.check()
            if not page.here:
                if self.budget.free < spare + page.bytes or not self._link_is_free(page.bytes):
                    return
                with self.traffic.engine.moved_by_others():
                    self.traffic.bring(page)
            self._early.popleft()

    def begin(self) -> None:
        """Begin a pass: state that came early for the one before may have left again."""
        self._early = None

    def _link_is_free(self, size: int) -> bool:
        """Return whether `size` bytes may come now, so that no activation that comes back soon waits behind them."""
        lead_s = self.tuning.fetch_lead_s
        planned = self.traffic.step.planned_link_use(lead_s)
        if planned is None:
            return True
        now, link_s = planned
        new_s = max(0.0, link_s - self._planned_link_s)
        self._link_busy_until = max(self._link_busy_until, now) + new_s
        self._planned_link_s = max(link_s, self._planned_link_s)
        if self._link_busy_until > now + lead_s:
            return False
        self._link_busy_until += size / self.transfer.rates().back
        return True

    def _bring(self, chunk: Chunk) -> None:
        for page in self._pages(chunk):
            page.check()
            self.traffic.bring(page)

    def _pages(self, chunk: Chunk) -> Iterator[Page]:
        """Yield all pages that the step of a chunk needs."""
        for parameter in chunk:
            yield from self.traffic.pages_of(parameter)
            yield from self.pages.get(id(parameter), ())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the optimizer, chunk by chunk."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        chunks = self.chunks()
        groups = [(group, group["params"]) for group in self.optimizer.param_groups]
        stays = self.traffic.step.left_to_state(self.shape)
        leaving = self.bytes - stays if self.pages and self.lazy else EVERYTHING  # bytes that must leave
        temporaries: list[float] = []
        self._peak, self._marks = 0, []
        try:
            with self.transfer.watching():
                for index, chunk in enumerate(chunks):
                    self._fetch(chunks, index)
                    temporaries.append(self._step_chunk(chunk, groups))
                    self._stepped(chunk, leaving > 0)
                    leaving -= sum(page.bytes for page in self._pages(chunk))
            self._learn_temporaries(temporaries)
            self.budget.note_peak(self._peak)
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

    def _fetch(self, chunks: list[Chunk], index: int) -> None:
        """Bring a chunk, and those after it where there is room for them, too."""
        chunk = chunks[index]
        for page in self._pages(chunk):
            page.users = 1  # it must not leave before the chunk was stepped
        wanted = self.away(chunk) + self.temporaries(chunk)
        self._let_others_go(wanted, chunks, index)
        if self.budget.free < wanted and not self.lazy:
            self.traffic.make_room(wanted)
        self._bring(chunk)
        for ahead in chunks[index + 1 : index + 2]:
            wanted = self.away(ahead) + self.away(chunk) + self.temporaries(chunk)
            self._let_others_go(wanted, chunks, index)
            if self.budget.free < wanted:
                return
            self._bring(ahead)
            for page in self._pages(ahead):
                page.users = 1
        if self.lazy:
            self._fetch_more(chunks, index, self.away(chunk) + self.temporaries(chunk))

    def _fetch_more(self, chunks: list[Chunk], index: int, spare: int) -> None:
        """Bring further chunks while one is stepped, so that the link is never idle."""
        self._reach = max(self._reach, index + 2)
        while self._reach < len(chunks):
            chunk = chunks[self._reach]
            if self.budget.free < spare + self.away(chunk):
                return
            self._bring(chunk)
            self._reach += 1

    def _let_others_go(self, wanted: int, chunks: list[Chunk], index: int) -> None:
        """Make room within a step: chunks that were stepped leave first, other models' state next, and of the chunks to
        come those that are stepped last.
        """
        if self.budget.free >= wanted:
            return
        self._let_state_go(wanted, chunks[:index])
        for model in tuple(self.budget.models):
            if model.release_state is not None and model is not self.traffic.usage:
                model.release_state(lambda: self.budget.free < wanted)
        self._let_state_go(wanted, chunks[:index:-1])

    def _let_state_go(self, wanted: int, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            if self.budget.free >= wanted:
                return
            for page in self._pages(chunk):
                if page.kind == "state":
                    page.leave()

    def _step_chunk(self, chunk: Chunk, groups: list[tuple[dict[str, Any], Chunk]]) -> float:
        """Step a chunk; return the bytes that were made and dropped again per byte of its parameters."""
        chosen = {id(parameter) for parameter in chunk}
        for page in self._pages(chunk):
            page.ready()
            page.show()
            # Fused kernels and writes to `.data` do not change the version counter. Gradients are only read.
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
        if fresh:  # the state itself was made, too
            return self.tuning.step_temporaries
        return (peak - before) / max(1, sum(local_part(parameter).nbytes for parameter in chunk))

    def _learn_temporaries(self, seen: list[float]) -> None:
        most = self.tuning.step_temporaries
        self._temporaries = min(most, self.tuning.temporaries_margin * max(seen, default=most))

    def seconds(self) -> float:
        """Return the seconds of compute of the last step; waits for its end."""
        return sum(self.transfer.seconds(*marks) for marks in self._marks)

    def _stepped(self, chunk: Chunk, leaves: bool) -> None:
        """Let a chunk that was stepped leave later, and start its copies if it must; new state becomes pages."""
        for parameter in chunk:
            if id(parameter) not in self.pages and parameter in self.optimizer.state:
                self._adopt(parameter)
        for page in self._pages(chunk):
            if leaves:
                page.send()
            page.users = 0
            page.hide()
            if page in self._on_device:
                del self._on_device[page]
                self._on_device[page] = None

    def _came(self, page: Page) -> None:
        if page not in self._on_device:
            self.traffic.usage.state_on_device += page.bytes
        self._on_device[page] = None

    def _went(self, page: Page) -> None:
        if page in self._on_device:
            del self._on_device[page]
            self.traffic.usage.state_on_device -= page.bytes

    def _adopt(self, parameter: torch.Tensor) -> None:
        """Make pages of the state of a parameter."""
        found = [
            value for value in self.optimizer.state[parameter].values() if isinstance(value, torch.Tensor)
        ]
        parts = [(local_part(value), value) for value in found]
        self.pages[id(parameter)] = [
            Page(part, self.transfer, self.traffic.callbacks, "state", whole=None if part is value else value)
            for part, value in parts
            if type(part) is torch.Tensor
            and part.device == self.transfer.device
            and part.nbytes > self.tuning.smallest_page_bytes
            and part.untyped_storage().nbytes() == part.nbytes
        ]

    def make_room(self, wanted: int | None = None) -> None:
        """Let state leave until `wanted` bytes are free, by default those that the pass may want next.

        The state of other models leaves first.
        """
        if wanted is None:
            if self.traffic.step.follows_plan:
                return  # the step makes room, event by event
            ahead = self.traffic.step.bytes_ahead()
            wanted = self.spare if ahead is None else ahead
        self.budget.release_state(lambda: self.budget.free < wanted, last=self.traffic.usage)

    def let_go(self, more: Callable[[], bool] = lambda: True) -> None:
        """Let state leave as long as `more()` is true, in the order in which it was stepped; pages in use stay."""
        with self.traffic.engine.moved_by_others():
            for page in tuple(self._on_device):
                if not more():
                    return
                page.leave()

    def loaded(self) -> None:
        """Make pages of all state after other state was put in its place, as by `load_state_dict`."""
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
        """Return what `state_dict` gives: with copies in host memory of the state that is paged."""
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

    def away(self, chunk: Chunk) -> int:
        """Return the bytes that come before a chunk is stepped: pages on the host, and state that is made."""
        fresh = sum(self._expected_state(parameter) for parameter in chunk if id(parameter) not in self.pages)
        return fresh + sum(page.bytes for page in self._pages(chunk) if not page.here)

    def _expected_state(self, parameter: nn.Parameter) -> int:
        """Return the bytes of state that an optimizer is expected to keep for a parameter."""
        return int(self.tuning.state_factor * local_part(parameter).nbytes)

    def temporaries(self, chunk: Chunk) -> int:
        """Return the bytes that the step of a chunk makes and drops again."""
        return int(self._temporaries * sum(local_part(parameter).nbytes for parameter in chunk))
