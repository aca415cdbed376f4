"""Stands in for `weft` or `python` in a folder of commands: asks the fork server beside it to run the program.

The interpreter that reads this file loads no site and no package, so that a command costs milliseconds. Streams,
folder and environment are the caller's; signals are passed on, and the end of the program is the end of this process.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
NOT_FORKED = b"not forked"  # the answer to a command line that only a new interpreter can run


def main() -> int:
    """Have the program run, and return its exit code."""
    command = Path(__file__)
    signals = {getattr(signal, name) for name in PASSED_ON}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until there is a process to pass them on to
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    home = command.parent.parent
    own = home / f"socket-{os.uname().nodename}"  # of a server on this host of a virtual cluster
    connection.connect(str(own if own.exists() else home / "socket"))
    request = {"argv": [command.name, *sys.argv[1:]], "env": dict(os.environ), "cwd": str(Path.cwd())}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    answer = connection.recv(64)
    if answer == NOT_FORKED:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    pid = int(answer)
    home.joinpath("pids", str(os.getpid())).write_text(answer.decode())
    for number in signals:
        signal.signal(number, lambda received, _: os.kill(pid, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = int(connection.recv(64))
    if code < 0:  # as the program did
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
