"""The network in which a browser is tried has nothing in it that could change."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from tests.page.network import own_network

NAMES = "import socket; print([name for _, name in socket.if_nameindex()])"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a separate network")
def test_own_network_covers_child_processes_and_ends():
    before = socket.if_nameindex()
    with own_network():
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        assert (
            subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True).stdout
            == "['lo']\n"
        )
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            pass
    assert socket.if_nameindex() == before
