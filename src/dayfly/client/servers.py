"""The servers of `dayfly login`: their addresses and keys."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit, unknown_name_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.client.home import Home


class Server(NamedTuple):
    """A server of `dayfly login`: its address, organisation and key, and `ca` as in `Address`."""

    url: str
    org: str
    key: str
    ca: str = ""

    def __repr__(self) -> str:
        return f"Server({self.url}, organisation {self.org})"  # without the key: a traceback shows what is printed


def get(home: Home, name: str) -> Server:
    """Return the server with that name.

    Raises:
        DayflyError: there was no `dayfly login` with that name.
    """
    known = _read(home)
    found = known.get(name)
    if found is None:
        raise unknown_name_error(f'no server "{name}" is known here', name, known, "dayfly login URL --name NAME")
    try:
        return Server(found["url"], found["org"], found["key"], found.get("ca", ""))
    except (LookupError, TypeError):
        raise _damaged(home) from None


def put(home: Home, name: str, server: Server) -> None:
    """Store a server by its name, readable only by the owner; an existing one with the name is replaced."""
    home.make()
    with _exclusive_lock(home):
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
    """Return the names of all known servers."""
    return sorted(_read(home))


@contextlib.contextmanager
def _exclusive_lock(home: Home) -> Iterator[None]:
    """Lock the file against changes by other processes, so that no entry is lost."""
    try:
        import fcntl
    except ImportError:
        yield  # Windows: concurrent logins are not protected
        return
    folder = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # the file system may have no locks
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
