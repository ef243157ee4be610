"""Ports for servers that tests start by number."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_CHANCE = random.SystemRandom()  # two workers draw other numbers


def free_port() -> int:
    """One where nobody listens, and that the kernel passes out to nobody who binds port 0 or connects meanwhile."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = _CHANCE.randrange(lowest // 2, lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
