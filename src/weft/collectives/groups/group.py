"""A group of ranks as torch knows it: who it is, how its operations are queued, and how it breaks.

On torch 2.11 to 2.13 a backend in Python must be a whole ProcessGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.groups.blame import first_cause
from weft.collectives.groups.call import SIGNATURE_BYTES, Call, compare
from weft.collectives.groups.contiguous import Ready
from weft.collectives.groups.device import OnDevice
from weft.collectives.groups.meeting import meet
from weft.collectives.groups.roll import store_of_this_life, watched_over
from weft.collectives.groups.threads import on_one_thread
from weft.collectives.groups.work import CollectiveJob, JobQueue, Work
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.settings import CollectiveSettings
from weft.collectives.torch_private import PrefixStore, Store, device_names
from weft.errors import CollectiveError, MismatchError, PeerError

# torch's stubs give what callers may write, in several forms each; a group in Python is called in one form only, with
# `opts` by position or by name.
_ProcessGroup: Any = dist.ProcessGroup
GLOO_CONNECT = timedelta(seconds=10)  # for the peers of an elastic run to connect, once they have met


class Group(_ProcessGroup):  # type: ignore[misc]
    """The base of all groups: the queue, the members and the breaking that every operation shares."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, settings: CollectiveSettings
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = self._description = ""
        self._doing = Call("the meeting of the group")
        self._broken: BaseException | None = None
        self.settings = settings  # those of the world hold for groups that are made in it
        self._timeout = timeout
        self._calls = 0
        self._monitored = 0  # monitored barriers so far
        self._watched_over = watched_over()
        self._store: Any = store_of_this_life(store, rank, size, timeout)
        self._queue = JobQueue("weft-collectives")
        meeting = meet(self._store, rank, size, timeout, settings, lambda: str(self._doing))
        self._meeting = meeting
        self._members = meeting.members
        self._hierarchy = on_one_thread(meeting.hierarchy)
        self._devices: dict[torch.device, OnDevice] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._gloo: Any = self._connect_gloo(timeout)

    def _connect_gloo(self, timeout: timedelta) -> Any:
        """Make the Gloo group that carries what has no mode of ours.

        Gloo cannot be interrupted while it waits for a peer to connect, so a group that may be given up does not wait
        long: all peers have just been there.
        """
        connecting = min(timeout, GLOO_CONNECT) if self._watched_over else timeout
        made: Any = dist.ProcessGroupGloo(
            PrefixStore("gloo", self._store), self._rank, self._size, connecting
        )
        made.barrier().wait()  # a rank that ends at once must not be gone while others still connect to it
        made._set_default_timeout(timeout)
        return made

    # -- who we are -----------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 (torch's spelling)
        return "weft"

    def getRank(self) -> int:  # noqa: N802
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        return self._size

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    @property
    def group_name(self) -> str:
        return self._name

    # What parts of torch ask a group before they use it; its C++ base knows no backend of ours.

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(name) for name in device_names()]

    def _get_backend(self, device: torch.device) -> Any:
        """Return Gloo's group of the same members, for whatever wants to talk to the backend of a device."""
        if torch.device(device).type not in device_names():
            raise RuntimeError(
                f"a device must be one of {', '.join(device_names())}, got {device}; use one of them"
            )
        return self._gloo

    # -- jobs -----------------------------------------------------------------------------------------

    def _submit(self, call: Call, run: Callable[[], Any], opts: Any, gives: list[Tensor]) -> Work:
        """Queue an operation; `gives` is what its future holds."""
        ready = Ready(call.tensors if call.tensors is gives else [*call.tensors, *gives])
        job = CollectiveJob(partial(self._carry_out, call, run, ready), gives)
        self._queue.put(job, soon=opts is None or getattr(opts, "asyncOp", True))
        return Work(job, self._queue)

    def _carry_out(self, call: Call, run: Callable[[], Any], ready: Ready) -> Any:
        if self._broken is not None:
            raise CollectiveError(f"the group must be whole for {call}, got one that broke: {self._broken}")
        self._doing = call
        ready.wait()
        try:
            if self.settings.debug:
                self._agree(call)
            if not ready.devices and not torch.is_inference_mode_enabled():
                return on_one_thread(run)
            with self._aside(ready.devices):
                return on_one_thread(run)
        except MismatchError as error:
            self._break(error)
            raise
        except (PeerError, RuntimeError) as error:
            raise self._break_for(call, error) from error
        except BaseException as error:  # Ctrl-C, say: the others wait for us in vain
            given_up = self._cause_of_break()
            self._break(error)
            if given_up is not None and isinstance(error, Exception):
                # Another thread broke the group: what it took away may be missed in many ways.
                raise CollectiveError(f"{call} failed: the group broke meanwhile: {given_up}") from error
            raise

    @contextmanager
    def _aside(self, devices: Iterable[torch.device]) -> Iterator[None]:
        """Leave the caller's inference mode and streams for a moment: modes keep tensors for later."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            for device in devices:
                if device not in self._streams:
                    self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                stack.enter_context(torch.cuda.stream(self._streams[device]))
            yield
            for device in devices:  # whoever is told that it is done may look from any stream
                self._streams[device].synchronize()

    def _serving(self, values: Tensor) -> Hierarchy | OnDevice:
        """Return what carries out collectives on the device of these values; all ranks call this alike."""
        if values.is_cpu:
            return self._hierarchy
        device = values.device
        if device not in self._devices:
            from weft.collectives.groups.accelerators import meet_on_device

            self._devices[device] = meet_on_device(self._meeting, self._hierarchy, device)
        return self._devices[device]

    def _agree(self, call: Call) -> None:
        """With WEFT_DEBUG: make sure that all ranks make the same call."""
        self._calls += 1
        signatures = torch.empty(self._size * SIGNATURE_BYTES, dtype=torch.uint8)
        self._gather_bytes(call.signature(self._calls), signatures, [SIGNATURE_BYTES] * self._size)
        compare(signatures, self._members)

    def _break_for(self, call: Call, error: Exception) -> CollectiveError:
        """Break the group, and return the error to raise: what went wrong, and which rank caused it."""
        self._break(error)
        message = str(error)
        if str(call) not in message:  # what torch and Gloo raise
            message = f"{call} {'timed out' if 'Timed out' in message else 'failed'}: {error}"
        named = False
        if not self._watched_over:
            message, named = first_cause(self._store, self._members, self._rank, message, str(call))
        failure = PeerError(message) if named or isinstance(error, PeerError) else CollectiveError(message)
        self._broken = failure
        return failure

    def _cause_of_break(self) -> BaseException | None:
        """Return why the group is broken, by now: any thread may have broken it."""
        return self._broken

    def _break(self, error: BaseException) -> None:
        """Tell the other ranks at once that this group is broken: they would wait for this rank in vain."""
        self._broken = error
        if hierarchy := self.__dict__.get("_hierarchy"):
            hierarchy.close()
        for device in self.__dict__.get("_devices", {}).values():
            device.close()

    # -- what callers must get right on their own -----------------------------------------------------

    def _check_parts(self, name: str, parts: Sequence[Tensor], like: Tensor, ours: Sequence[Tensor]) -> None:
        """Refuse parts that are not one for each rank, of one type, and in `ours` as many elements as `like` has."""
        if len(parts) != self._size:
            raise ValueError(f"{name} must have {self._size} tensors, one for each rank, got {len(parts)}")
        if types := {part.dtype for part in parts} - {like.dtype}:
            raise ValueError(f"{name} must have tensors of one type, got {like.dtype} and {types.pop()}")
        for part in ours:
            if part.numel() != like.numel():
                raise ValueError(
                    f"{name} must have {like.numel()} elements from each rank, got {part.numel()}"
                )

    def _check_whole(self, name: str, whole: Tensor, part: Tensor) -> None:
        if whole.dtype != part.dtype:
            raise ValueError(f"{name} must have tensors of one type, got {whole.dtype} and {part.dtype}")
        if whole.numel() != part.numel() * self._size:
            raise ValueError(
                f"{name} must have {self._size} x {part.numel()} elements in the whole, got {whole.numel()}"
            )

    # -- the end --------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self._queue.close()
        if self._broken is None:
            self._broken = CollectiveError("it was destroyed")
        # Connections and memory go now, not when the garbage collector finds whom they refer to.
        hierarchy = self.__dict__.pop("_hierarchy", None)
        if hierarchy is not None:
            hierarchy.close()
        while self._devices:
            self._devices.popitem()[1].close()
        self.__dict__.pop("_meeting", None)
        self._gloo = self._store = None

    @property
    def busy(self) -> bool:
        """Return whether an operation is under way."""
        return self._queue.busy

    def abort(self) -> None:
        self._break(CollectiveError("it was aborted"))
