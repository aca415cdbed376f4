"""Something to be done once before the process is gone: at its end, after an exception, or when it is asked to end."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 10.0  # for others who come to their end
HURRY_S = 1.5  # after SIGTERM, which is followed by SIGKILL some seconds later


class Ending:
    """An action at the end of the process, done once; to be made on the main thread, or nothing is done on SIGTERM."""

    def __init__(self, do: Callable[[float], None]) -> None:
        self._do = do
        self._over = self._asked_meanwhile = False
        self._doer = 0  # the thread that does it
        self._doing = threading.RLock()
        atexit.register(self.now, PATIENCE_S)
        self._pid = os.getpid()
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            self._listen_for_sigterm()

    def now(self, patience_s: float) -> None:
        with self._doing:
            if self._over or os.getpid() != self._pid:
                return
            self._over = True
            self._doer = threading.get_ident()
            try:
                self._do(patience_s)
            finally:
                self._doer = 0  # or we would never again end when asked to
                # Not before: a main thread that comes to its end meanwhile waits for us there.
                atexit.unregister(self.now)
        if self._asked_meanwhile:
            self._die()

    def _listen_for_sigterm(self) -> None:
        """Do the action on SIGTERM, also while the main thread waits in C++, where no Python handler runs.

        A thread hears of the signal by a pipe.
        """
        ear, mouth = os.pipe()
        os.set_blocking(mouth, False)
        before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        if before != -1:  # somebody else's, asyncio's say
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._asked)
        threading.Thread(target=self._hear, args=(ear,), name="weft-ending", daemon=True).start()
        os.register_at_fork(after_in_child=self._forget)

    def _hear(self, ear: int) -> None:
        while signal.SIGTERM not in os.read(ear, 64):
            pass
        self.now(HURRY_S)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self._doer == threading.get_ident():  # we interrupt what is being done: it goes on, and we go then
            self._asked_meanwhile = True
            return
        self.now(HURRY_S)  # waits for the thread that does it
        self._die()

    def _die(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _forget(self) -> None:
        """Forget the action in a forked child, which has an end of its own."""
        if signal.getsignal(signal.SIGTERM) == self._asked:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
