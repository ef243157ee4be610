"""Sockets that listen where an option says: whose fault it is where they cannot, and what is none of theirs."""

import socket

import pytest

from dayfly.cli.local.server_process import listening
from dayfly.client.errors import DayflyError, Exit


@pytest.mark.parametrize(("called", "said"), [("", "127.0.0.1:{port}"), ("port x", "port x")])
def test_address_in_use_error_names_the_option_to_change(called, said):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(DayflyError) as refused, listening("127.0.0.1", port, "choose another", called=called):
            pass
    assert refused.value.code == Exit.FAILED
    assert str(refused.value) == f"{said.format(port=port)}: address already in use; choose another"


def test_later_error_is_not_reported_as_address_in_use():
    with pytest.raises(OSError, match="disk"), listening("127.0.0.1", 0, "choose another") as sock:
        raise OSError(28, "disk full")
    assert sock.fileno() == -1
