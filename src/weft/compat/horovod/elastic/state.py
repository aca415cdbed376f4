"""States of elastic training: what survives a change of the run's members, by saving, restoring and broadcasting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from weft.compat.horovod.elastic.changes import HostMessages, raise_if_changed, raise_if_told


class State:
    """The base of all states. A subclass has `save`, `restore`, `sync` and, if it needs one, `reset`."""

    def __init__(
        self, bcast_object: Callable[..., Any] | None = None, get_rank: Callable[[], int] | None = None
    ) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self._reset_callbacks: list[Callable[[], object]] = []
        self._host_messages = HostMessages()
        self._last_updated_timestamp = 0.0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Have functions called after each change of members, before the state is broadcast: to scale lr, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to the new world."""
        self._host_messages = HostMessages()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Save the state, and stop here if members come or go; all ranks do so together."""
        self.save()
        raise_if_changed(committed=True)
        self._raise_if_told()

    def check_host_updates(self) -> None:
        """Stop here if members come or go, without saving."""
        raise_if_changed(committed=False)
        self._raise_if_told()

    def _raise_if_told(self) -> None:
        self._last_updated_timestamp = raise_if_told(
            self._host_messages, self._last_updated_timestamp, self._bcast_object
        )

    def save(self) -> None:
        """Keep the present state for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take over the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget what belongs to the old world; nothing by default."""

    def on_hosts_updated(self, timestamp: float, update_res: int = 0) -> None:
        """Stop at the next commit: a driver other than Weft's agents says that hosts were added (2) or removed (1)."""
        self._host_messages.put((timestamp, update_res))


class ObjectState(State):
    """A state of plain attributes, which may be anything that can be pickled."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = dict(kwargs)
        self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._saved_state = copy.deepcopy(self._saved_state)
        self._set_attributes()

    def sync(self) -> None:
        if self._saved_state:
            if self._bcast_object is None:
                from weft.compat.horovod.torch.functions import broadcast_object

                self._bcast_object = broadcast_object
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attributes()
