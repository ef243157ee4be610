"""Other servers than the home's own: where they are, and the keys that `dayfly login` was given for them."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit, not_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.client.home import Home


class Server(NamedTuple):
    """Where a server is, whose key it is, the key, and the certificates that its own is trusted by, as in `Address`."""

    url: str
    org: str
    key: str
    ca: str = ""

    def __repr__(self) -> str:
        return f"Server({self.url}, organisation {self.org})"  # without the key: a traceback shows what is printed


def get(home: Home, name: str) -> Server:
    """The server of that name.

    Raises:
        DayflyError: nobody has logged in to it.
    """
    known = _read(home)
    found = known.get(name)
    if found is None:
        raise not_there(f'no server "{name}" is known here', name, known, "dayfly login URL --name NAME")
    try:
        return Server(found["url"], found["org"], found["key"], found.get("ca", ""))
    except (LookupError, TypeError):
        raise _damaged(home) from None


def put(home: Home, name: str, server: Server) -> None:
    """Keep a server by its name, for its owner's eyes alone; one of that name is replaced."""
    home.make()
    with _alone(home):
        known = _read(home)
        known[name] = {field: value for field, value in server._asdict().items() if value}
        fresh = home.servers.with_suffix(f".{os.getpid()}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(known, file, indent=1)
            fresh.replace(home.servers)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def names(home: Home) -> list[str]:
    """All that are known."""
    return sorted(_read(home))


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Within this no other process changes the file: it would write it without what we add, or we without its own."""
    import fcntl

    folder = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # of a file system that has no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _read(home: Home) -> dict[str, Any]:
    text = home.read(home.servers)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _damaged(home)
    return found


def _damaged(home: Home) -> DayflyError:
    advice = "remove it, and log in again with: dayfly login URL"
    return DayflyError(Exit.FAILED, f"{home.servers} is damaged", advice)
