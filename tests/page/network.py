"""A separate network without changing interfaces.

Chromium cancels requests when the machine gets a new address (ERR_NETWORK_CHANGED), and other tests start containers at
the same time, each with an interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Give this thread, and the threads and processes that it starts here, only a loopback interface.

    This needs root; for other users nothing changes.
    """
    if os.geteuid() != 0:
        yield
        return
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _must(_LIBC.unshare(CLONE_NEWNET))
        _raise_loopback()
        yield
    finally:
        _must(_LIBC.setns(before, CLONE_NEWNET))
        os.close(before)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sH14x", b"lo", 0)
        _, flags = struct.unpack("16sH14x", fcntl.ioctl(asked, SIOCGIFFLAGS, request))
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
