"""States of this machine: in the home, each head and each chunk a file of its own, for nobody but us.

One server has the home, so a lock of this process makes the swap of a head one step; each file is on the disk before
the next one is begun.
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
from dayfly.execute.state.service import Found, FullError, StateOwner
from dayfly.spec.run import Phase, Run

# So much of the disk is left to others.
_LEAST_FREE = 64 << 20


def folder(home: Path) -> Path:
    """Where the states of a home lie."""
    return home / "states"


def keys(home: Path, *, make_them: bool = True) -> StateKeys:
    """What seals the states of this home. Drawn at the first call.

    Raises:
        FileNotFoundError: there are none, and none are to be made.
        ValueError: the file is not what was written.
    """
    path = folder(home) / "key"
    if not (known := read_file(str(path))) and make_them:
        folder(home).mkdir(mode=0o700, exist_ok=True)
        _put(path, secrets.token_bytes(KEY_BYTES))
        known = read_file(str(path))
    if not known:
        raise FileNotFoundError(path)
    return StateKeys.derive(known)


def heads(home: Path) -> dict[StateOwner, Head | DamagedError]:
    """All states of a home, also of runs that were abandoned; why one cannot be read, in its place."""
    found: dict[StateOwner, Head | DamagedError] = {}
    for path in sorted(folder(home).glob("*/*/head")):
        place = StateOwner(path.parent.parent.name, path.parent.name)
        with contextlib.suppress(FileNotFoundError):
            try:
                found[place] = decode(path.read_bytes(), str(path))
            except DamagedError as error:
                found[place] = error
    return found


def chunks(home: Path, place: StateOwner, version: Version) -> list[bytes]:
    """The chunks of a version, those that are there."""
    found = []
    for index in range(version.chunks):
        path = _chunk(home, place, version.blob, index)
        if path.exists():
            found.append(path.read_bytes())
    return found


class StateFiles:
    """The store of this host (`execute.state.service.Store`)."""

    def __init__(self, home: Path, reader: SqliteLedger) -> None:
        self._home = home
        self._reader = reader
        self._swapping = asyncio.Lock()

    async def find(self, place: StateOwner) -> Found:
        return self.found(place)

    def found(self, place: StateOwner) -> Found:
        """The head of a state as it is now; an empty one if there is none.

        Raises:
            DamagedError: the file is not what was written.
        """
        path = _at(self._home, place) / "head"
        data = read_file(str(path))
        # What is there and empty was never written so: who began anew over it would lose what there is.
        if not data and not path.exists():
            return Found(Head())
        return Found(decode(data, str(path)), digest(data))

    async def read_ledger(self, run: str) -> Run | None:
        stored = self._reader.load(run)
        return None if stored is None else stored.run

    async def swap(self, place: StateOwner, before: Found, after: Head) -> bool:
        async with self._swapping:
            if (await self.find(place)).tag != before.tag or self._reader.load(place.run) is None:
                return False
            await asyncio.to_thread(_put, _at(self._home, place) / "head", msgspec.json.encode(after))
            return True

    async def write_chunks(self, place: StateOwner, _run: Run, blob: str, chunks: list[bytes]) -> None:
        room = os.statvfs(self._home)
        if room.f_bavail * room.f_frsize - sum(map(len, chunks)) < _LEAST_FREE:
            raise FullError(f"the disk of {self._home} is nearly full: the state would leave less than 64 MiB")
        for index, chunk in enumerate(chunks):
            await asyncio.to_thread(_put, _chunk(self._home, place, blob, index), chunk)

    async def read_chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        return await asyncio.to_thread(chunks, self._home, place, version)

    async def delete_chunks(self, place: StateOwner, blob: str, count: int) -> None:
        for index in range(count):
            _chunk(self._home, place, blob, index).unlink(missing_ok=True)

    def clear(self, run: Run) -> None:
        """The run is over: its states go, unless its cleanup was given up."""
        if run.phase is Phase.CLEANED:
            shutil.rmtree(folder(self._home) / run.uid, ignore_errors=True)


def _at(home: Path, place: StateOwner) -> Path:
    return folder(home) / place.run / place.resource


def _chunk(home: Path, place: StateOwner, blob: str, index: int) -> Path:
    return _at(home, place) / f"{blob}.{index}"


def _put(path: Path, data: bytes) -> None:
    """Write it whole or not at all, and have it on the disk."""
    for above in (path.parent.parent, path.parent):  # with all of them at once only the last one would be private
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
