"""A packet filter for a socket that listens: it takes what has begun, and no new connections.

A socket that is closed while connections wait to be accepted resets them, though their clients may have sent requests.
With the filter, packets that would begin a connection are dropped; the client tries again after a second, and finds
that nobody listens any more.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys

_SO_ATTACH_FILTER = 26
_FLAGS_AT = 13  # byte of the TCP header that holds its flags
_SYN = 0x02
_LOAD_BYTE, _JUMP_IF_SET, _RETURN = 0x30, 0x45, 0x06  # of classic BPF
_KEEP_ALL = 0xFFFFFFFF


def refuse_new_connections(listening: socket.socket) -> bool:
    """Drop packets that would begin a connection; return False where the system has no such filter."""
    if sys.platform != "linux":
        return False
    program = b"".join(
        struct.pack("=HBBI", *line)
        for line in (
            (_LOAD_BYTE, 0, 0, _FLAGS_AT),
            (_JUMP_IF_SET, 0, 1, _SYN),
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, _KEEP_ALL),
        )
    )
    lines = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of lines, and their address after padding.
    described = struct.pack("@HP", 4, ctypes.addressof(lines))
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
    except OSError:
        return False
    return True
