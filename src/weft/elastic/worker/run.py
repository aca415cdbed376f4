"""An elastic run as a script sees it: `run = elastic.join()`, then a loop that stays the script's own.

    run = elastic.join()
    loader = run.loader(dataset, batch=64)
    run.register(model=model, optimizer=optimizer)
    for epoch in run.epochs(10):
        for x, y in loader:
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

The loader gives micro-batches, this worker's share of each step. The optimizer acts when a step is complete, once
for all its micro-batches and all members; before that, `optimizer.step()` and `scheduler.step()` do nothing.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import IterableDataset

from weft import context
from weft.collectives.choices import parse_mode
from weft.collectives.modes.tcp.mesh import own_address
from weft.collectives.settings import CollectiveSettings, settings_from_env
from weft.elastic.data.feed import Collate, MapFeed, SampleSource, StreamFeed, seeded
from weft.elastic.data.order import SampleOrder, TrainingStep
from weft.elastic.data.shares import deal
from weft.elastic.membership.view import Member, View
from weft.elastic.torch_private import mark_scheduler_aware
from weft.elastic.worker import misuse
from weft.elastic.worker.beat import Beat
from weft.elastic.worker.link import AgentLink, FixedLink, inherited
from weft.elastic.worker.messages import ScriptEnded, WorkerLeaving
from weft.elastic.worker.participant import Participant
from weft.errors import UsageError
from weft.secret import new_secret


def join(
    *,
    on_leave: Callable[[], object] | None = None,
    reproducible: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
) -> Run:
    """Take part in the run this process was started for; without `weft run --elastic`, in a world that is fixed.

    `on_leave` is called when this worker is asked to leave (its host is taken away) and has left. With
    `reproducible`, gradients are added in an order that does not depend on who computed them, so that the result has
    the same bits whatever happens; every micro-batch's gradients then travel by themselves. `checkpoint` is a
    folder to save in and to resume from, `checkpoint_every` the steps from one to the next; the flags of `weft run`
    fill in what is not said here.
    """
    from weft.collectives.register import autoload

    autoload()
    uncaught = misuse.watch_exceptions()
    given = inherited(os.environ)
    device = context.device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    settings = _settings(os.environ)
    if given is None:
        participant, most = _fixed_world(settings, reproducible)
    else:
        link = AgentLink(given[0])
        welcome = link.welcome()
        participant = Participant(
            link, Beat.at(given[1]), settings=settings, secret=welcome.secret, reproducible=reproducible
        )
        most = welcome.most
        _leave_on_sigterm(link)
        atexit.register(_tell_script_ended, link, participant, uncaught)
    participant.on_leave = on_leave
    folder = Path(checkpoint).absolute() if checkpoint is not None else None
    participant.saver.configure(folder, checkpoint_every)
    return Run(participant, device, most, uncaught)


def _settings(environ: Mapping[str, str]) -> CollectiveSettings:
    """Read the settings of the groups. They are made anew at every change: mode `explore` would measure each time."""
    settings = settings_from_env(environ)
    return settings if environ.get("WEFT_MODE") else replace(settings, mode=parse_mode("ring"))


def _fixed_world(settings: CollectiveSettings, reproducible: bool) -> tuple[Participant, int]:
    """A world of the size another launcher gave it: everyone is in the one view there is."""
    import torch.distributed as dist

    place = context.init_with(settings)
    secrets = [new_secret()]
    dist.broadcast_object_list(secrets)
    link = FixedLink(View(0, (_placeholder_member(),), ()), 0)
    participant = Participant(
        link,
        Beat(),
        settings=settings,
        secret=secrets[0],
        reproducible=reproducible,
    )
    ours = Member(
        worker=f"{place.host}/{place.local_rank}.0",
        agent=place.host,
        host=place.host,
        slot=place.local_rank,
        address=own_address(settings.launcher),
        store_port=participant.store_port,
        heal_port=participant.heal_port,
    )
    members: list[Any] = [None] * place.size
    dist.all_gather_object(members, ours)
    link.view, link.name = View(0, tuple(members), ()), ours.worker
    context.shutdown()
    return participant, place.size


def _placeholder_member() -> Member:
    return Member("", "", "", 0, "", 0, 0)


def _tell_script_ended(link: AgentLink, participant: Participant, uncaught: misuse.Uncaught) -> None:
    """Tell the agent that the script has come to its end after the last step: who is killed now has nothing left to do.

    Handlers run in the opposite order of their registration, so those that the script registers after `join` have run.
    """
    if participant.finished and not uncaught.happened:
        link.tell(ScriptEnded())


def _leave_on_sigterm(link: AgentLink) -> None:
    """SIGTERM asks this worker to leave at the end of the step, unless the script has its own answer to it."""

    def ask(*_: object) -> None:  # in a thread: we may be in the middle of telling something else
        threading.Thread(target=link.tell, args=(WorkerLeaving(),), daemon=True).start()

    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, ask)


class Run:
    """This worker's handle on the run."""

    def __init__(
        self, participant: Participant, device: torch.device, most: int, uncaught: misuse.Uncaught
    ) -> None:
        self._participant, self._uncaught = participant, uncaught
        self._most = most
        self.device = device
        self._loader: Loader | None = None

    # -- who we are now ---------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Return this worker's rank in the present view; it may change when members leave."""
        return self._participant.rank

    @property
    def size(self) -> int:
        """Members of the present view."""
        view = self._participant.view
        return view.size if view is not None else 1

    @property
    def num_hosts(self) -> int:
        view = self._participant.view
        return len({member.host for member in view.members}) if view is not None else 1

    @property
    def name(self) -> str:
        """Return the name of this worker: host/slot.incarnation."""
        return self._participant.name

    @property
    def committed(self) -> int:
        """Steps that are permanent."""
        return self._participant.committed

    @property
    def applied(self) -> bool:
        """Return whether this iteration applied the step: true once a step, false for its other micro-batches."""
        return self._participant.applied

    # -- what the script gives us -----------------------------------------------------------------

    def register(self, **objects: Any) -> None:
        """Keep these through every change: model, optimizer, scheduler, scaler, anything with `state_dict`."""
        misuse.check_registered(objects)
        self._participant.register(objects)
        for value in objects.values():
            _tame(value, self._participant)

    def loader(
        self,
        dataset: Any,
        batch: int | None = None,
        *,
        micro: int | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        collate_fn: Collate | None = None,
        **options: Any,
    ) -> Loader:
        """Samples in batches of `batch` over all members; `micro` is how many are computed at once.

        By default a batch makes one micro-batch for each worker the run may have. Smaller ones share the work more
        evenly when some are missing. Further options are those of torch's DataLoader: num_workers, pin_memory...
        """
        if self._loader is not None:
            raise UsageError("a run has one loader, got a second; evaluate with a DataLoader of torch's")
        batch = misuse.check_loader(dataset, batch, options)
        micro = micro or -(-batch // self._most)
        if isinstance(dataset, IterableDataset):
            feed: SampleSource = StreamFeed(
                dataset, batch, micro, seed=seed, drop_last=drop_last, collate=collate_fn, **options
            )
        else:
            order = SampleOrder(len(dataset), batch, micro, seed, shuffle, drop_last)
            feed = MapFeed(dataset, order, collate=collate_fn, **options)
        self._participant.attend(feed)
        self._loader = Loader(self._participant, feed, seed)
        return self._loader

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of so many; for a newcomer not all of them."""
        loop = self._participant.arrive()
        atexit.register(self._leave_early)  # of no effect once the loop has come to its end
        try:
            while loop.replica.epoch < count:
                epoch = loop.replica.epoch
                loop.replica.reload_healed()
                yield epoch
                loop.skip_to_epoch(epoch + 1)
        except GeneratorExit:
            if self._participant.applied and not sys.is_finalizing():
                loop.close_ticket()  # the script has left its loop after a step that it applied
            raise
        loop.finish()

    def _leave_early(self) -> None:
        if not self._uncaught.happened:
            self._participant.loop.leave_early()

    def save(self) -> None:
        """Have the next commit saved, as well as those whose turn it is; any member may ask for it."""
        saver = self._participant.saver
        if saver.directory is None:
            raise UsageError(
                "run.save needs a folder, got none; use --checkpoint or elastic.join(checkpoint=...)"
            )
        saver.asked = True

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Enter long work inside the loop, during which this worker is not taken for stuck."""
        self._participant.pause()
        yield
        self._participant.resume()


@dataclass
class Loader:
    """Gives the micro-batches of one epoch each time it is gone through."""

    _participant: Participant
    _feed: SampleSource
    _seed: int

    def __post_init__(self) -> None:
        self._feed.planned = self._planned

    def __len__(self) -> int:
        """Steps in an epoch."""
        if self._feed.steps_per_epoch is None:
            raise TypeError("a data set that can only be read in order has no known number of steps")
        return self._feed.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        loop = self._participant.loop
        epoch = loop.replica.epoch
        try:
            while (ticket := loop.next_ticket(epoch)) is not None:
                batch = self._feed.batch(ticket.step, ticket.micro)
                seeded(self._seed, ticket.step, ticket.micro)
                loop.begin(ticket)
                yield batch
        except GeneratorExit:
            if not sys.is_finalizing():
                loop.await_healed()  # the script leaves the loop, and may change what is registered
            raise
        finally:
            self._participant.pause()

    def _planned(self) -> Iterator[tuple[TrainingStep, int]]:
        """Yield what this worker computes if nothing changes: the rest of this step, then its share of later ones."""
        feed, loop = self._feed, self._participant.loop
        place, work = loop.place, loop.replica.work
        if work is None:
            return
        weights = [member.weight for member in place.view.members]
        rest = tuple(work.todo)  # as it is now: micro-batches are taken from it while the loader reads ahead
        yield from ((work.step, micro) for micro in rest)
        number, epoch, start = work.step.number, work.step.epoch, work.step.stop
        while True:
            number += 1
            step = feed.first(number, epoch, start)
            if step is None:
                epoch, start, number = epoch + 1, 0, number - 1
                continue
            for micro in deal(feed.micros(step), weights)[place.rank]:
                yield step, micro
            start = step.stop


def _tame(value: Any, participant: Participant) -> None:
    """Have what acts once a step do so: its methods do nothing in the turns of the loop that do not end one."""
    if isinstance(value, torch.optim.Optimizer):
        _patch(value, "step", functools.partial(_step, participant, value.step))
    elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        _override_step(value, participant)
    elif isinstance(value, torch.amp.GradScaler):
        _patch(value, "step", functools.partial(_scaler_step, participant, value.step))
        for name in ("unscale_", "update"):
            _patch(value, name, functools.partial(_when_ready, participant, getattr(value, name)))
    elif isinstance(value, AveragedModel):
        _patch(value, "update_parameters", functools.partial(_average, participant, value.update_parameters))


def _patch(value: Any, name: str, instead: Any) -> None:
    mark_scheduler_aware(instead)
    setattr(value, name, instead)


def _override_step(scheduler: Any, participant: Participant) -> None:
    """Give it a class of its own: what is set on a scheduler itself becomes part of its state."""
    kind = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        acts = participant.applied or not participant.in_turn
        return kind.step(self, *args, **kwargs) if acts else None

    scheduler.__class__ = type(kind.__name__, (kind,), {"step": step})


def _step(participant: Participant, original: Any, closure: Any = None) -> Any:
    if closure is not None:
        raise UsageError("an optimizer in an elastic run must step without a closure, got one")
    if not participant.ready:
        return None
    participant.loop.replica.keep_copy()
    result = original()
    participant.mark_applied()
    return result


def _scaler_step(participant: Participant, original: Any, optimizer: Any, *args: Any) -> Any:
    if not participant.ready:
        return None
    participant.loop.replica.keep_copy()
    result = original(optimizer, *args)
    participant.mark_applied()  # even if the scaler skipped it: the samples are consumed
    return result


def _average(participant: Participant, original: Any, model: torch.nn.Module) -> None:
    if participant.applied or not participant.in_turn:
        original(model)


def _when_ready(participant: Participant, original: Any, *args: Any) -> Any:
    return original(*args) if participant.ready else None
