"""Running a Python program in a fork of this process, which has torch loaded, where a new interpreter would be started.

`import torch` takes a CPU second or more, and the tests start hundreds of workers. A fork has it at once. What a
program can tell apart is kept as it would be: its arguments, environment, folder, open files, signals, `__main__`, what
`/proc` shows of it, and the way an interpreter ends.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, NoReturn

from testing.forking import shown
from testing.forking.learned import Learned

_OWN_PATHS = os.environ.get("PYTHONPATH", "").split(os.pathsep)
WEFT = str(Path(sys.executable).with_name("weft"))
FOLDER_PREFIX = "weft-forks-"  # of folders of commands that ask a fork server
_execv = os.execv
learned: Learned | None = None  # of the server that this process is a fork of
_FLAGS = ("-u", "-P")  # of the interpreter; neither changes how a program under test behaves here


@dataclass(frozen=True)
class Program:
    """A script, a module or a text with its arguments."""

    target: str
    kind: Literal["script", "-m", "-c"]
    args: tuple[str, ...]

    @property
    def argv(self) -> list[str]:
        """The command line that would start it."""
        kind = () if self.kind == "script" else (self.kind,)
        return [sys.executable, *kind, self.target, *self.args]

    def load(self) -> tuple[CodeType, str, str]:
        """Return its code, its file and its package."""
        if self.kind == "-c":
            return compile(self.target, "<string>", "exec", dont_inherit=True), "", ""
        if self.kind == "script":
            code = compile(Path(self.target).read_bytes(), self.target, "exec", dont_inherit=True)
            return code, self.target, ""
        name = self.target
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        if spec.submodule_search_locations is not None:  # of a package Python runs the module `__main__`
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
            assert spec is not None, name
        loader: Any = spec.loader
        return loader.get_code(name), str(spec.origin), name.rpartition(".")[0]


def program_of(argv: Sequence[str]) -> Program | None:
    """Return the Python program that a command line starts, if it starts one in this interpreter. Pure."""
    words = [str(word) for word in argv]
    if words and words[0] == WEFT:
        return Program(WEFT, "script", tuple(words[1:]))
    if not words or not _is_interpreter(words[0]):
        return None
    rest = words[1:]
    while rest and rest[0] in _FLAGS:
        rest = rest[1:]
    if len(rest) > 1 and rest[0] in ("-m", "-c"):
        return Program(rest[1], "-m" if rest[0] == "-m" else "-c", tuple(rest[2:]))
    if rest and not rest[0].startswith("-"):
        return Program(rest[0], "script", tuple(rest[1:]))
    return None


def _is_interpreter(command: str) -> bool:
    """Return whether a command is this interpreter, or one that asks a fork server for it. Pure."""
    path = Path(command)
    asks = path.name.startswith("python") and path.parent.parent.name.startswith(FOLDER_PREFIX)
    return command == sys.executable or asks


class ForkingPopen(subprocess.Popen[Any]):
    """A Popen that forks for Python programs, and starts all others as ever."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        program = program_of(args) if isinstance(args, list | tuple) else None
        if program is None:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        # In the order of CPython's own, which has been the same since 3.11.
        _, preexec, close_fds, pass_fds, cwd, env, _, _, _, *pipes = others[:15]
        _, gid, gids, uid, umask, new_session, *_ = others[15:]
        assert (gid, gids, uid, umask) == (None, None, None, -1), "not needed so far"
        stdin, to_child, from_child, stdout, errors_from_child, stderr = pipes

        def prepare() -> None:
            for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
                if source not in (-1, target):
                    os.dup2(source, target)
            if close_fds:
                _close_all_but(pass_fds)
            if cwd is not None:
                os.chdir(cwd)
            if new_session:
                os.setsid()
            if preexec is not None:
                preexec()

        self.pid = fork(program, env, prepare)
        self._child_created = True
        self._close_pipe_fds(stdin, to_child, from_child, stdout, errors_from_child, stderr)  # type: ignore[attr-defined]


def fork(program: Program, env: Mapping[str, str] | None, prepare: Callable[[], None]) -> int:
    """Run a program in a fork that `prepare` has put in its place; return the pid. The fork never returns."""
    known = len(sys.modules)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        _forget_handlers()
        prepare()
        signal.pthread_sigmask(signal.SIG_SETMASK, before - {signal.SIGTERM})
        _renew(program, dict(os.environ) if env is None else env)
        code = _run(program)
    except BaseException:
        traceback.print_exc()
    if learned is not None:
        learned.tell(list(sys.modules)[known:])
    return _end(code)


def become(path: str, argv: Sequence[str]) -> NoReturn:
    """Go on as another program in this process, as os.execv does, with torch loaded."""
    program = program_of([path, *argv[1:]])
    if program is None:
        _execv(path, list(argv))
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None:
            # Raised as soon as the thread runs again, which a thread that waits for input does once there is some.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )
    sys.stdout.flush()
    sys.stderr.flush()
    _forget_handlers()
    _close_on_exec()
    code = 1
    try:
        _renew(program, dict(os.environ))
        code = _run(program)
    except BaseException:
        traceback.print_exc()
    _end(code)


def _end(code: int) -> NoReturn:
    """End as an interpreter does: threads are waited for, atexit runs, what the program made is destroyed.

    Modules are not torn down, nor the globals of libraries: that takes a third of a CPU second for torch, most of it
    for copies of pages that the forks shared. Tests of how a process with torch ends start an interpreter.
    """
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(BaseException):
        sys.modules["__main__"].__dict__.clear()
        gc.collect()  # what was there before the fork is frozen
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed by the program, or by who read it
            stream.flush()
    os._exit(code)


def _close_on_exec() -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # that of the folder itself
            if int(entry.name) > 2 and not os.get_inheritable(int(entry.name)):
                os.close(int(entry.name))


def _forget_handlers() -> None:
    """Handlers of the forking program are not the new one's, as after exec."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _close_all_but(kept: Collection[int]) -> None:
    # Objects that own these descriptors live on in the frames below this one, and close nothing.
    first = 3
    for descriptor in [*sorted(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]:
        os.closerange(first, descriptor)
        first = descriptor + 1


def _renew(program: Program, env: Mapping[str, str]) -> None:
    """What an interpreter sets up before it runs a program."""
    # What the forking program would tidy up when it ends, temporary folders for one, is still in its use.
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["-c" if program.kind == "-c" else program.target, *program.args]
    others = [path for path in sys.path[1:] if path not in _OWN_PATHS]
    first = str(Path(program.target).resolve().parent) if program.kind == "script" else str(Path.cwd())
    sys.path[:] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *others]
    through = bool(env.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout.reconfigure(write_through=through, line_buffering=through)
    sys.stderr.reconfigure(errors="backslashreplace")
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules and env.get("OMP_NUM_THREADS", "").isdigit():
        sys.modules["torch"].set_num_threads(int(env["OMP_NUM_THREADS"]))
    if "weft.collectives.register" in sys.modules:
        sys.modules[
            "weft.collectives.register"
        ].autoload()  # as torch calls it, with the program's environment
    shown.show(program.argv, env)


def _run(program: Program) -> int:
    """Run a program as `__main__`; return the code that an interpreter would end with."""
    code, file, package = program.load()
    if program.kind == "-m":
        sys.argv[0] = file
    main = ModuleType("__main__")
    main.__dict__.update(__file__=file, __package__=package or None, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)
    except SystemExit as end:
        return _code_of(end)
    except BaseException as error:
        kind, value, trace = type(error), error, error.__traceback__
        sys.excepthook(kind, value, trace.tb_next if trace else None)  # without the line above
        if kind is KeyboardInterrupt:
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _code_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1
