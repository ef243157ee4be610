"""The Terraform states of this machine: in the home, with one file for each head and chunk, readable only by the owner.

Only one server uses the home, so a lock of this process makes the swap of a head atomic. Each file is on the disk
before the next one is written.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from pathlib import Path

import msgspec

from dayfly.embedded.ledger import SqliteLedger
from dayfly.execute.process.files import create_file, private, read_file
from dayfly.execute.state.access import KEY_BYTES, StateKeys
from dayfly.execute.state.head import DamagedError, Head, Version, decode
from dayfly.execute.state.seal import digest
from dayfly.execute.state.service import FullError, StateOwner, StoredHead
from dayfly.spec.run import Phase, Run

# Free disk space in bytes that a state must leave to other programs.
_MIN_FREE_BYTES = 64 << 20


def folder(home: Path) -> Path:
    """Return the directory of a home's states."""
    return home / "states"


def keys(home: Path, *, make_them: bool = True) -> StateKeys:
    """Return the keys that seal the states of this home; created at the first call.

    Raises:
        FileNotFoundError: there is no key, and `make_them` is false.
        ValueError: the key file is damaged.
    """
    path = folder(home) / "key"
    if not (known := read_file(str(path))) and make_them:
        folder(home).mkdir(mode=0o700, exist_ok=True)
        write_file(path, secrets.token_bytes(KEY_BYTES))
        known = read_file(str(path))
    if not known:
        raise FileNotFoundError(path)
    return StateKeys.derive(known)


def heads(home: Path) -> dict[StateOwner, Head | DamagedError]:
    """Return all states of a home, also of abandoned runs; for an unreadable state, the error."""
    found: dict[StateOwner, Head | DamagedError] = {}
    for path in sorted(folder(home).glob("*/*/head")):
        owner = StateOwner(path.parent.parent.name, path.parent.name)
        with contextlib.suppress(FileNotFoundError):
            try:
                found[owner] = decode(path.read_bytes(), str(path))
            except DamagedError as error:
                found[owner] = error
    return found


def chunks(home: Path, owner: StateOwner, version: Version) -> list[bytes]:
    """Return the existing chunks of a version."""
    found = []
    for index in range(version.chunks):
        path = _chunk(home, owner, version.blob, index)
        if path.exists():
            found.append(path.read_bytes())
    return found


class StateFiles:
    """The store of this host (`execute.state.service.Store`)."""

    def __init__(self, home: Path, reader: SqliteLedger) -> None:
        self._home = home
        self._reader = reader
        self._swapping = asyncio.Lock()

    async def find(self, owner: StateOwner) -> StoredHead:
        return self.load(owner)

    def load(self, owner: StateOwner) -> StoredHead:
        """Return the head of a state; an empty one if there is none.

        Raises:
            DamagedError: the file is damaged.
        """
        path = _owner_folder(self._home, owner) / "head"
        data = read_file(str(path))
        # An empty file is damaged, not absent: Terraform would start from scratch and lose its resources.
        if not data and not path.exists():
            return StoredHead(Head())
        return StoredHead(decode(data, str(path)), digest(data))

    async def read_ledger(self, run: str) -> Run | None:
        stored = self._reader.load(run)
        return None if stored is None else stored.run

    async def swap(self, owner: StateOwner, before: StoredHead, after: Head) -> bool:
        async with self._swapping:
            if (await self.find(owner)).tag != before.tag or self._reader.load(owner.run) is None:
                return False
            await asyncio.to_thread(write_file, _owner_folder(self._home, owner) / "head", msgspec.json.encode(after))
            return True

    async def write_chunks(self, owner: StateOwner, _run: Run, blob: str, chunks: list[bytes]) -> None:
        room = os.statvfs(self._home)
        if room.f_bavail * room.f_frsize - sum(map(len, chunks)) < _MIN_FREE_BYTES:
            raise FullError(f"the disk of {self._home} is nearly full: the state would leave less than 64 MiB")
        for index, chunk in enumerate(chunks):
            await asyncio.to_thread(write_file, _chunk(self._home, owner, blob, index), chunk)

    async def read_chunks(self, owner: StateOwner, version: Version) -> list[bytes]:
        return await asyncio.to_thread(chunks, self._home, owner, version)

    async def delete_chunks(self, owner: StateOwner, blob: str, count: int) -> None:
        for index in range(count):
            _chunk(self._home, owner, blob, index).unlink(missing_ok=True)

    def clear(self, run: Run) -> None:
        """Remove the states of a run that has ended, unless the run was abandoned."""
        if run.phase is Phase.CLEANED:
            shutil.rmtree(folder(self._home) / run.uid, ignore_errors=True)


def _owner_folder(home: Path, owner: StateOwner) -> Path:
    return folder(home) / owner.run / owner.resource


def _chunk(home: Path, owner: StateOwner, blob: str, index: int) -> Path:
    return _owner_folder(home, owner) / f"{blob}.{index}"


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
    for above in (path.parent.parent, path.parent):  # with `parents=True`, only the last one would get the mode
        above.mkdir(mode=0o700, exist_ok=True)
    draft = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        Path(draft).unlink()
    try:
        create_file(draft, data)
        _sync(draft)
        Path(draft).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
        raise
    _sync(str(path.parent))


def _sync(path: str) -> None:
    descriptor = private(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
