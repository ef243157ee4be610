"""Free ports for servers that need a fixed port."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANDOM = random.SystemRandom()  # workers must not draw the same numbers


def free_port() -> int:
    """Return a port without a listener, outside of the range that the kernel uses for port 0 and for connections."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = _RANDOM.randrange(lowest // 2, lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
