"""Checkpoints of an elastic run: when one is due, who writes what of it, and who reads it after a full restart.

Every member has the whole state in its memory and heals others from there, so losing any of them, but not all, needs
no disk. A checkpoint is for the loss of all at once.

At a commit, each member copies its share of the state to host memory, which is all that training waits for, and a
thread writes it. All members save the same step or none does: who wants one and who still writes the one before is
summed with the gradients. Nothing else is said between members, as a group may break at any time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from weft.elastic.checkpoint import layout
from weft.elastic.checkpoint.cadence import Cadence
from weft.elastic.checkpoint.snapshot import Snapshot, cut
from weft.elastic.data.shares import MemberSummary
from weft.elastic.membership.view import View
from weft.elastic.replica import state
from weft.elastic.worker.link import AgentLink
from weft.elastic.worker.messages import CheckpointSaved, WorkerHealed
from weft.errors import UsageError
from weft.version import __version__

KEEP = 2  # whole ones
REFUSED = -2  # on a card: there is a checkpoint, of something else
TORN = -3  # there are some, and none is whole
ANEW = "or name another --checkpoint to begin anew"


class RefusedError(UsageError):
    """A checkpoint that this script cannot go on from: no member can begin."""


class Saver:
    """One member's part in saving and resuming; without a folder it does nothing."""

    def __init__(self, link: AgentLink, run: str) -> None:
        self._link, self._run = link, f"{zlib.crc32(run.encode()):08x}"
        self.directory: Path | None = None
        self.cadence = Cadence()
        self.asked = False  # by the script, for the next commit
        self._identity: dict[str, Any] = {}
        self._disk = 0
        self._disks: list[int] = []  # by rank
        self._refusal = ""
        self._torn: set[int] = set()
        self._reading = -1, 0, 0  # view, rank and step that were tried last
        self._snapshot = Snapshot()
        self._thread: threading.Thread | None = None
        self._saved = 0  # the last step of which our share was written
        self._agreed = False
        self._skipped = 0

    def configure(self, directory: Path | None, every: int | None) -> None:
        """Set the checkpoint folder and interval from the script, or else from the flags of the run."""
        flags = os.environ.get("WEFT_CHECKPOINT"), os.environ.get("WEFT_CHECKPOINT_EVERY")
        self.directory = directory or (Path(flags[0]) if flags[0] else None)
        every = every if every is not None else int(flags[1]) if flags[1] else None
        if every is not None and every < 1:
            raise UsageError(f"checkpoints must be at least 1 step apart, got {every}")
        self.cadence = Cadence(every)

    # -- when members meet ------------------------------------------------------------------------

    def card(self, objects: Mapping[str, Any], data: Mapping[str, Any], *, stays: bool) -> list[int]:
        """Return what the others must know: the disk that this worker sees, and for a newcomer what is on it."""
        if self.directory is None:
            return [0, -1]
        self._identity = {
            "schema": state.schema(objects),
            "objects": {name: type(value).__name__ for name, value in sorted(objects.items())},
            # How a batch is cut depends on how many members there may be, which may change.
            "data": {name: value for name, value in data.items() if name != "micro"},
        }
        if not self._disk:
            if (inside := layout.checkpoint_file(self.directory)) is not None:
                raise UsageError(
                    f"--checkpoint must be a folder of checkpoints, got one of them ({inside} is in it): "
                    f"{self.directory}; name the folder above it, {ANEW}"
                )
            try:
                self._disk = layout.disk_of(self.directory, self._run)
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"--checkpoint must be a folder that can be written, got {self.directory}: {error}; "
                    f"mend that, {ANEW}"
                ) from error
        return [self._disk, -1 if stays else self._newest()]

    def meet(self, cards: Sequence[Sequence[int]]) -> None:
        """The cards of all members, by rank."""
        self._disks = [disk for disk, _ in cards]

    def _newest(self) -> int:
        assert self.directory is not None
        found = layout.find(self.directory)
        saved = next((saved for saved in found if saved.about and saved.step not in self._torn), None)
        if saved is None:
            self._refusal = _torn(found)
            return TORN if found else -1
        self._refusal = _differs(saved, self._identity)
        return REFUSED if self._refusal else saved.step

    # -- resuming ---------------------------------------------------------------------------------

    def reader(self, view: View, summaries: Sequence[MemberSummary]) -> int | None:
        """The rank that has to read a checkpoint, as it has one newer than what anyone brings; all find the same."""
        number, rank, step = self._reading
        if number == view.number and summaries[rank].committed < step and self._disks[rank] == self._disk:
            self._torn.add(step)  # for us as well
        if any(summary.stays for summary in summaries):
            return None
        committed = max(summary.committed for summary in summaries)
        newest = max(summary.saved for summary in summaries)
        wrong = [rank for rank, summary in enumerate(summaries) if summary.saved == REFUSED]
        if newest < 0:  # a torn one is no matter where another is whole
            wrong = wrong or [rank for rank, summary in enumerate(summaries) if summary.saved == TORN]
        if wrong and not committed:
            host, torn = view.members[wrong[0]].host, summaries[wrong[0]].saved == TORN
            raise RefusedError(self._refusal or (_torn_on(host) if torn else _other_on(host)))
        if newest <= committed:
            self.cadence.last = max(self.cadence.last, committed)
            return None
        rank = next(rank for rank, summary in enumerate(summaries) if summary.saved == newest)
        self._reading = view.number, rank, newest
        return rank

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse a checkpoint whose state the registered objects do not accept while they load it."""
        try:
            yield
        except Exception as error:  # whatever their load_state_dict raises
            raise RefusedError(
                f"what is registered must take the state of step {self._reading[2]} in {self.directory}, "
                f"got {error!r}; use the same model, {ANEW}"
            ) from error

    def read(self, view: View) -> state.StateImage | None:
        """The state of the checkpoint we offered; None if it turns out to be torn."""
        from weft.elastic.checkpoint import dcp

        assert self.directory is not None
        began = time.monotonic()
        step = self._reading[2]
        for saved in layout.find(self.directory):
            if saved.step in self._torn:
                continue
            try:
                image = dcp.read(saved)
            except layout.TornError as error:
                _warn(f"{error}; taking the checkpoint before it")
                self._torn.add(saved.step)
                if saved.step > step:
                    continue  # it was not the one we offered
                return None
            if saved.step == step:
                seconds = round(time.monotonic() - began, 4)
                self._link.tell(
                    WorkerHealed(
                        view=view.number,
                        step=step,
                        bytes=image.nbytes,
                        seconds=seconds,
                        sources=(str(saved.folder),),
                    )
                )
                return image
        return None

    # -- saving -----------------------------------------------------------------------------------

    def vote(self, step: int, rank: int) -> tuple[float, float]:
        """Return whether this worker wants the step that is to commit saved, and whether it cannot save it."""
        if self.directory is None:
            return 0.0, 0.0
        return float(self.asked or (rank == 0 and self._due(step))), float(self._writes())

    @property
    def agreed(self) -> bool:
        """Return whether the step that is to commit will be saved."""
        return self._agreed

    def is_saved(self, step: int) -> bool:
        """Wait for what is being written; return whether our share of this step is."""
        if self._thread is not None:
            self._thread.join()
        return self._saved == step

    def voted(self, wanted: float, unable: float) -> None:
        self._agreed = bool(wanted) and not unable
        self._skipped += bool(wanted) and bool(unable)

    def _due(self, step: int) -> bool:
        return self.cadence.due(step) and (self.cadence.every is not None or not self._writes())

    def _writes(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def committed(
        self, view: View, rank: int, position: tuple[int, int, int], image: Callable[[], state.StateImage]
    ) -> None:
        """Note that a step is permanent; if all agreed to save it, copy our share, and have it written."""
        if self.directory is None:
            return
        self.cadence.note_commit(time.monotonic())
        if self._agreed:
            self._agreed = False
            self._save(view, rank, position, image)

    def close(
        self,
        view: View,
        rank: int,
        position: tuple[int, int, int],
        image: Callable[[], state.StateImage],
    ) -> None:
        """Save the last commit, as all members are at the end, and finish what is under way."""
        if self._thread is not None:
            self._thread.join()
        if self.directory is not None and position[0] > self.cadence.last:
            self._save(view, rank, position, image)
            assert self._thread is not None
            self._thread.join()

    def _save(
        self, view: View, rank: int, position: tuple[int, int, int], image: Callable[[], state.StateImage]
    ) -> None:
        began = time.perf_counter()
        self.asked, self.cadence.last = False, position[0]
        writers = [other for other, disk in enumerate(self._disks) if disk == self._disk]
        share = writers.index(rank), len(writers)
        now = image()
        pieces = cut(now.tensors, share[1])[share[0]]
        copies = self._snapshot.take(now.tensors, pieces)
        about = {
            "step": position[0],
            "epoch": position[1],
            "start": position[2],
            **self._identity,
            "attempt": f"{self._run}/{view.number}",
            "run": os.environ.get("WEFT_RUN_ID", ""),
            "weft": __version__,
            "torch": torch.__version__,
        }
        blocking_s = time.perf_counter() - began
        skipped, self._skipped = self._skipped, 0

        def write() -> None:
            self._write(about, share, now, pieces, copies, round(blocking_s, 6), skipped)

        self._thread = threading.Thread(target=write, name="weft-checkpoint")
        self._thread.start()

    def _write(
        self,
        about: dict[str, Any],
        share: tuple[int, int],
        image: state.StateImage,
        pieces: Sequence[Any],
        copies: Sequence[torch.Tensor],
        blocking_s: float,
        skipped: int,
    ) -> None:
        from weft.elastic.checkpoint import dcp  # seconds, once: no part of what a checkpoint costs

        assert self.directory is not None
        began, busy = time.perf_counter(), time.thread_time()
        try:
            whole = layout.add_part(
                self.directory,
                about,
                *share,
                lambda folder: dcp.write(folder, image, pieces, copies, with_rest=share[0] == 0),
            )
            if whole is not None:  # ours was the last part
                dcp.join(whole)
                layout.sweep(self.directory, whole.step, KEEP)
        except Exception as error:  # a full disk must not end a run
            _warn(f"step {about['step']} could not be saved in {self.directory}: {error!r}; training goes on")
            return
        self._saved = about["step"]
        nbytes = sum(copy.nbytes for copy in copies)
        self.cadence.cost_s = blocking_s + time.thread_time() - busy
        seconds = round(time.perf_counter() - began, 4)
        self._link.tell(CheckpointSaved(about["step"], nbytes, seconds, blocking_s, skipped))


def _torn(found: Sequence[layout.SavedCheckpoint]) -> str:
    """Return why the run cannot resume where no checkpoint is whole; empty if there is none at all."""
    if not found:
        return ""
    names = ", ".join(saved.folder.name for saved in found)
    return (
        f"one checkpoint in {found[0].folder.parent} must be whole, got {names}, torn; "
        f"bring back a copy of it, {ANEW}"
    )


def _torn_on(host: str) -> str:
    return f"one checkpoint on {host} must be whole, got torn ones; bring back a copy of one, {ANEW}"


def _other_on(host: str) -> str:
    return (
        f"the checkpoints on all hosts must be of this script, got another on {host}; "
        f"use the same model and data, {ANEW}"
    )


def _differs(saved: layout.SavedCheckpoint, identity: Mapping[str, Any]) -> str:
    """Return why the run cannot resume from a checkpoint; empty if it can."""
    then = saved.about
    if lacking := sorted(identity.keys() - then.keys()):
        return (
            f"a checkpoint must be one of weft {__version__} or alike, got {saved.folder} without "
            f"{', '.join(lacking)}; use the weft it was written with, {ANEW}"
        )
    data = {
        name: (then["data"].get(name), value)
        for name, value in identity["data"].items()
        if then["data"].get(name) != value
    }
    if data:
        text = ", ".join(f"{name} {now} where it has {before}" for name, (before, now) in data.items())
        return (
            f"the data of a run must be as in its checkpoint {saved.folder}, got {text}; "
            f"use the same data, batch and seed, {ANEW}"
        )
    if then["schema"] == identity["schema"]:
        return ""
    text = "other names or shapes of tensors"
    if then["objects"] != identity["objects"]:
        text = f"{_listed(identity['objects'])} where it has {_listed(then['objects'])}"
    return (
        f"what is registered must be as in the checkpoint {saved.folder}, got {text}; "
        f"use the same model, {ANEW}"
    )


def _listed(objects: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in objects.items())


def _warn(text: str) -> None:
    print(f"weft: {text}", file=sys.stderr, flush=True)
