"""Who holds a home: the process of its server, or nobody."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dayfly.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from dayfly.client.home import Home


def process(home: Home) -> int | None:
    """The process that holds the home's lock; None if nobody does.

    The number is in the lock file, and only as good as the lock: it is read while somebody holds it.
    """
    import fcntl

    home.check()
    try:
        descriptor = os.open(home.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        reason = (fault.strerror or "cannot be read").lower()
        raise CliError(Exit.DENIED, f"{home.path}: {reason}", "set DAYFLY_HOME to a folder of yours") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        number = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(number) if number.isdigit() else None
    finally:
        os.close(descriptor)


def is_left_behind(home: Home) -> bool:
    """Whether the address in the home is of a server that was killed, so that whoever answers there is a stranger."""
    return bool(home.read(home.url)) and process(home) is None
