"""The reporter of one process: entries gather in memory, and a thread writes them to the process's channel."""

from __future__ import annotations

import atexit
import math
import operator
import os
import sys
import threading
import time
from collections import deque
from typing import Any

from weft.errors import UsageError
from weft.reporting.advice import VARIABLE as ADVICE_VARIABLE
from weft.reporting.advice import Advice, AdviceFile
from weft.reporting.channels import ReportChannel, channel_from_env
from weft.reporting.lines import Entry, encode_entry, split_entry
from weft.reporting.names import STEP_METRIC
from weft.reporting.torch_private import current_stream_number

FLUSH_S = 0.1  # between two writes
AGAIN_S = 1.0  # before a channel that failed is tried again
EXIT_S = 5.0  # for the last lines to be written when Python ends
MOST_LINES = 200_000  # that wait for a channel which takes none; then every second one goes
PIECE_LINES = 1000  # encoded and written together


class Reporter:
    """Takes entries from any thread without waiting, and writes them from its own."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._next_step = 0
        self._channel: ReportChannel | None = None
        self._advice: AdviceFile | None = None
        self.logs_steps = False  # the script logs the times of its steps itself
        self._thread: threading.Thread | None = None
        self._forks_watched = False
        self._told: set[str] = set()  # what was said once, by this process or the one it was forked from
        self._forget()

    def _forget(self) -> None:
        """Begin as a process that has logged nothing yet; a fork does, for its parent writes what it had."""
        self._entries.clear()
        self._unsent: deque[bytes] = deque()  # whole lines, but for the first of them
        self._thread = None
        self._wake = threading.Event()
        self._written = threading.Condition()
        self._rounds = 0  # times that the thread has written what there was
        self._ending = False

    # -- the training thread ----------------------------------------------------------------------

    def log(self, values: dict[str, Any], step: int | None) -> None:
        """Keep numbers of one step; `values` is this reporter's from now on."""
        if step is None:
            step = self._next_step
        elif type(step) is not int:
            step = _whole(step)
        self._next_step = step + 1
        if STEP_METRIC in values:
            self.logs_steps = True
        for name, value in values.items():
            if type(value) is not float and type(value) is not int:
                values[name] = _snapshot(name, value)
        self._entries.append((time.time_ns(), step, values))
        if self._thread is None:
            self._start()

    def note_step(self, values: dict[str, float], step: int) -> None:
        """Keep a time of a step that nobody logged, unless the script logs such times itself."""
        if not self.logs_steps:
            self._entries.append((time.time_ns(), step, values))
            if self._thread is None:
                self._start()

    def report(self, progress: float | None, text: str | None) -> tuple[Advice, ...]:
        """Keep the progress of the job; return advice that has come since the last call."""
        values: dict[str, Any] = {}
        if progress is not None:
            values["progress"] = _share(progress)
        if text is not None:
            values["text"] = str(text)
        if not values:
            raise UsageError(
                "weft.report must be given progress or text, got neither; see weft.log for numbers"
            )
        self._tell_service(values)
        if self._advice is None:
            self._advice = AdviceFile(os.environ.get(ADVICE_VARIABLE), self._tell_service)
        return self._advice.new()

    def _tell_service(self, values: dict[str, Any]) -> None:
        self._entries.append((time.time_ns(), None, values))
        if self._thread is None:
            self._start()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was kept so far is written; return whether it was."""
        thread = self._thread
        if thread is None:
            return not self._entries
        with self._written:
            goal = self._rounds + 2  # the round that goes on now may have begun before the last entry
            self._wake.set()
            self._written.wait_for(lambda: self._rounds >= goal or not thread.is_alive(), timeout_s)
        return not self._entries and not self._unsent

    # -- the thread -------------------------------------------------------------------------------

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="weft-reports", daemon=True)
        if not self._forks_watched:
            self._forks_watched = True
            os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._end)
        _at_end_of_child(self._end)
        self._channel = channel_from_env(os.environ)
        if self._channel is None:
            self._tell(
                "weft.log keeps nothing here, where there is no run directory; start the script with `weft run`, "
                "or set WEFT_RUN_DIR to a folder"
            )
        self._thread.start()

    def _end(self) -> None:
        """Write the rest before the process ends."""
        thread, self._ending = self._thread, True
        if thread is not None and thread is not threading.current_thread():
            self._wake.set()
            thread.join(EXIT_S)

    def _work(self) -> None:
        pause_s = FLUSH_S
        while True:
            ending = self._ending
            self._wake.wait(0.0 if ending else pause_s)
            self._wake.clear()
            fine = self._write_all()
            with self._written:
                self._rounds += 1
                self._written.notify_all()
            if ending:
                return
            pause_s = FLUSH_S if fine else AGAIN_S

    def _write_all(self) -> bool:
        """Write all entries; return False if the channel does not take them, which are kept then."""
        channel = self._channel
        while self._entries or self._unsent:
            self._encode(channel)
            if channel is None:
                self._unsent.clear()
                continue
            try:
                self._send(channel)
            except OSError as error:
                self._tell(f"weft.log cannot write and tries again: {error.strerror or error}")
                self._encode_all(channel)
                return False
        return True

    def _encode_all(self, channel: ReportChannel | None) -> None:
        while self._entries:
            self._encode(channel)
        while len(self._unsent) > MOST_LINES:
            self._tell(
                f"weft.log could not write for so long that it keeps every second of {MOST_LINES} lines"
            )
            first, *rest = self._unsent  # the first may have been written in part
            self._unsent = deque([first, *rest[1::2]])

    def _encode(self, channel: ReportChannel | None) -> None:
        rank = self._rank_in_lines(channel)
        for _ in range(min(PIECE_LINES, len(self._entries))):
            entry = self._entries.popleft()
            if channel is None or len(entry[2]) < 20:
                self._unsent.append(encode_entry(entry, rank))
            else:
                self._unsent.extend(split_entry(entry, rank, channel.longest))

    def _rank_in_lines(self, channel: ReportChannel | None) -> int | None:
        """Return the rank of this worker where it is not that of its channel: in an elastic run it may change."""
        text = os.environ.get("RANK", "")
        rank = int(text) if text.isdigit() else None
        return None if channel is None or rank == channel.rank else rank

    def _send(self, channel: ReportChannel) -> None:
        while self._unsent:
            lines = [self._unsent.popleft() for _ in range(min(PIECE_LINES, len(self._unsent)))]
            data = b"".join(lines)
            try:
                count = channel.write(data)
            except OSError:
                count = 0
                raise
            finally:
                self._unsent.extendleft(reversed(_left_of(lines, count)))

    def _tell(self, text: str) -> None:
        """Say something once."""
        if text not in self._told:
            self._told.add(text)
            print(f"weft: {text}", file=sys.stderr, flush=True)


def _left_of(lines: list[bytes], count: int) -> list[bytes]:
    """Return the lines that were not written, the first without what was."""
    for number, line in enumerate(lines):
        if count < len(line):
            return [line[count:], *lines[number + 1 :]]
        count -= len(line)
    return []


def _snapshot(name: str, value: Any) -> Any:
    """Return a value that later changes of the caller's do not reach."""
    try:
        on_cpu = getattr(value, "is_cpu", None)  # of a tensor
        if on_cpu is not None:
            return value.item() if on_cpu else _device_copy(value)
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"{type(value).__name__} of {value.numel()}" if hasattr(value, "numel") else repr(value)[:80]
        raise UsageError(
            f"a logged value must be a number or a tensor of one element, got {got} for {name!r}; "
            "log its mean, or use weft.report(text=...)"
        ) from error


class _DeviceCopy:
    """A copy of a tensor on its device, read when the stream that makes it has come that far."""

    def __init__(self, copy: Any, stream: Any) -> None:
        self._copy, self._stream = copy, stream

    def __float__(self) -> float:
        # In the background: this thread's own stream, the default one, knows nothing of the others.
        if isinstance(self._stream, int):
            self._stream = sys.modules["torch"].cuda.ExternalStream(self._stream, self._copy.device)
        self._stream.synchronize()
        return float(self._copy.item())


def _device_copy(value: Any) -> Any:
    """Return a copy on the device, which costs what starting it does; nothing waits for it here.

    An alias would be cheaper, but the tensor may be changed, by a replayed graph even without a new version.
    """
    if value.numel() != 1:
        raise ValueError("more than one element")
    torch: Any = sys.modules["torch"]
    copy = value.detach().clone()
    if not value.is_cuda:
        return _DeviceCopy(copy, torch.accelerator.current_stream(value.device))
    number = current_stream_number(value.get_device())
    return _DeviceCopy(copy, number) if number else copy


def _whole(step: Any) -> int:
    try:
        return int(step.item()) if hasattr(step, "item") else operator.index(step)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"step must be a whole number, got {step!r}; leave it out to count by itself"
        ) from error


def _share(progress: Any) -> float:
    share = float(progress)
    if not math.isfinite(share) or not 0 <= share <= 1:
        raise UsageError(f"progress must be from 0 to 1, got {progress!r}; divide by the number of steps")
    return share


def _at_end_of_child(end: Any) -> None:
    """Have the last lines of a child of multiprocessing written: it ends without Python's own exit."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, end, exitpriority=100)
