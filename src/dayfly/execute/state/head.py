"""The head of one resource's state: its lock, versions and refused writes. Pure.

Each function takes the current head and an attempt that is running according to the ledger. It returns the next head
and the response. The caller writes the next head by compare-and-swap over the head that it passed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.run import ALIVE, NEVER, Run, State

MAX_VERSIONS: Final = 20
MAX_REFUSALS: Final = 10
"""Number of refused writes that are recorded from the beginning, and again from the end."""
MAX_STORED_BYTES: Final = 8 << 20
"""Sealed bytes of all versions. The newest version is kept whatever its size."""
MAX_LOCK_ID_CHARS: Final = 200
MAX_LOCK_INFO_CHARS: Final = 4096


class LockHolder(WireStruct, frozen=True, kw_only=True):
    """An attempt of a unit; `unit` is its name in the run."""

    unit: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.unit}, attempt {self.attempt}"


class Lock(WireStruct, frozen=True, kw_only=True):
    """A lock as Terraform sent it: its ID, and as JSON the information that Terraform shows.

    The `id` is empty if the attempt holds the lock because it wrote without one (`-lock=false`).
    """

    id: str
    info: str
    holder: LockHolder
    at: int


class Version(WireStruct, frozen=True, kw_only=True):
    """One version of a state. `blob` names its chunks and is empty if this version is a deletion.

    `lineage`, `serial` and the number of `resources` are from the state; empty and 0 if they cannot be read.
    """

    number: int
    at: int
    holder: LockHolder
    size: int
    digest: str
    blob: str = ""
    chunks: int = 0
    stored: int = 0
    key: str = ""
    lineage: str = ""
    serial: int = 0
    resources: int = 0


class Refusal(WireStruct, frozen=True, kw_only=True):
    """A write of an attempt that was not stored. A later write of the attempt removes it, unless `lasts` is true."""

    holder: LockHolder
    at: int
    message: str
    lasts: bool = False


class Head(WireStruct, frozen=True, kw_only=True):
    """Lock, versions and refused writes, oldest first. `sandbox` and `namespace` name the target for display.

    `readers` are the units that have requested the state, whether or not there was one.
    """

    sandbox: str = ""
    namespace: str = ""
    resource: str = ""
    lock: Lock | None = None
    versions: tuple[Version, ...] = ()
    refused: tuple[Refusal, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def newest(self) -> Version | None:
        """The current version; None if no state was written, or it was deleted."""
        return self.versions[-1] if self.versions and self.versions[-1].blob else None

    @property
    def stored(self) -> int:
        """Total sealed bytes of all versions."""
        return sum(version.stored for version in self.versions)


class DamagedError(Exception):
    """A stored head cannot be decoded; the text names it."""


def decode(data: bytes, where: str) -> Head:
    """Decode a head; `where` is its location, for the error message.

    Raises:
        DamagedError: The data is not a head.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(f"the head of a state is damaged ({where}): {error}") from None


def damaged_head(error: DamagedError, reader: tuple[str, int]) -> Head:
    """Return a replacement for a damaged head, which records a refused write of the attempt `reader`."""
    who = LockHolder(unit=reader[0], attempt=reader[1])
    return Head(refused=(Refusal(holder=who, at=0, message=str(error), lasts=True),))


class StateResponse(msgspec.Struct, frozen=True):
    """An HTTP response."""

    status: int
    body: bytes = b""
    json: bool = False


class StateStep(msgspec.Struct, frozen=True):
    """A response that is valid after `head` is written (None: no write). Then the versions in `dropped` are deleted."""

    answer: StateResponse
    head: Head | None = None
    dropped: tuple[Version, ...] = ()


_decode = msgspec.json.Decoder(Head).decode
OK: Final = StateResponse(200)
NONE: Final = StateResponse(404, b"no state has been written yet\n")


def is_running(run: Run, who: LockHolder) -> bool:
    """Return whether the ledger has permitted this attempt and not recorded its end."""
    record = run.unit(who.unit)
    return record.attempt == who.attempt and record.state in ALIVE


def has_ended(run: Run, who: LockHolder) -> bool:
    """Return whether the ledger proves that this attempt has ended. A later claim is proof too."""
    record = run.units.get(who.unit, NEVER)
    return record.attempt > who.attempt or (record.attempt == who.attempt and record.state in (State.DONE, State.VOID))


def ended_message(who: LockHolder) -> str:
    """Return the message that refuses a request of an ended attempt."""
    return f"{who} has ended, so it may no longer read, lock or write this state; a later attempt may use it"


def read(head: Head, who: LockHolder) -> StateStep:
    """Record that the unit has read the state."""
    if who.unit in head.readers:
        return StateStep(OK)
    return StateStep(OK, msgspec.structs.replace(head, readers=(*head.readers, who.unit)))


def lock(head: Head, run: Run, who: LockHolder, wanted: tuple[str, str], now: int) -> StateStep:
    """Take the lock; `wanted` is its ID and the information that Terraform shows."""
    name, info = wanted
    held = head.lock
    if held is not None and not has_ended(run, held.holder):
        if (held.holder, held.id) == (who, name):
            return StateStep(OK)  # a retry, because the response was lost
        if held.holder != who or held.id:
            return StateStep(StateResponse(423, describe_lock(held), json=True))
    taken = Lock(id=name, info=info, holder=who, at=now)
    return StateStep(OK, msgspec.structs.replace(head, lock=taken))


def unlock(head: Head, run: Run, who: LockHolder, name: str) -> StateStep:
    """Release the lock. An empty `name` (`terraform force-unlock`) releases any lock of this attempt."""
    held = head.lock
    if held is None:
        return StateStep(OK)
    if held.holder == who and name in ("", held.id):
        return StateStep(OK, msgspec.structs.replace(head, lock=None))
    if has_ended(run, held.holder):
        return StateStep(OK, msgspec.structs.replace(head, lock=None))
    return StateStep(StateResponse(409, describe_lock(held), json=True))


def write(head: Head, run: Run, who: LockHolder, name: str, version: Version) -> StateStep:
    """Add a version if the attempt holds the lock with the ID `name`.

    Without an ID (`-lock=false`), the attempt takes the lock if it is free, and keeps it until the attempt ends.
    """
    if refusal := _refuse_unless_held(head, who, name) if name else _refuse_if_taken(head, run, who, version):
        return refuse(head, who, refusal, version.at)
    keeps = bool(name) or (head.lock is not None and head.lock.holder == who)
    lock = head.lock if keeps else Lock(id="", info="{}", holder=who, at=version.at)
    refused = tuple(each for each in head.refused if each.holder != who or each.lasts)
    after = msgspec.structs.replace(head, lock=lock, refused=refused)
    if head.newest is not None and head.newest.digest == version.digest:
        return StateStep(OK, None if after == head else after)  # a retry, or an unchanged state
    every = (*head.versions, msgspec.structs.replace(version, number=_next_number(head)))
    kept = _newest_within_limits(every)
    return StateStep(OK, msgspec.structs.replace(after, versions=kept), every[: len(every) - len(kept)])


def refuse(
    head: Head, who: LockHolder, answer: StateResponse, now: int, message: str = "", *, lasts: bool = True
) -> StateStep:
    """Refuse a write and record it, because the resources in it may be in no other state."""
    if any(each.holder == who and (each.lasts or not lasts) for each in head.refused):
        return StateStep(answer)
    refusal = Refusal(holder=who, at=now, message=message or _info(answer), lasts=lasts)
    every = (*(each for each in head.refused if each.holder != who), refusal)
    kept = every if len(every) <= 2 * MAX_REFUSALS else (*every[:MAX_REFUSALS], *every[-MAX_REFUSALS:])
    return StateStep(answer, msgspec.structs.replace(head, refused=kept))


def delete(head: Head, who: LockHolder, name: str, now: int) -> StateStep:
    """Add a version without a state. The earlier versions are kept for inspection."""
    if (
        refusal := _refuse_unless_held(head, who, name)
        if name
        else _conflict("only the holder of the lock may delete a state")
    ):
        return StateStep(refusal)
    if head.newest is None:
        return StateStep(OK)
    gone = Version(number=_next_number(head), at=now, holder=who, size=0, digest="")
    every = (*head.versions, gone)
    kept = _newest_within_limits(every)
    return StateStep(OK, msgspec.structs.replace(head, versions=kept), every[: len(every) - len(kept)])


def describe_lock(held: Lock) -> bytes:
    """Return the lock information of a refused request: that of its holder, and the attempt that holds the lock.

    Terraform may show only the ID, so the ID contains the attempt.
    """
    try:
        info = msgspec.json.decode(held.info or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        info = {}
    who = f"held by {held.holder}, which has not ended"
    info |= {"ID": f"{held.id} ({who})", "Info": who}
    return msgspec.json.encode(info)


def ended_response(who: LockHolder) -> StateResponse:
    """Return the response to an ended attempt that requests the lock, as lock information that Terraform shows."""
    info = {"ID": f"none ({ended_message(who)})", "Who": "Dayfly", "Operation": "", "Info": ended_message(who)}
    return StateResponse(423, msgspec.json.encode(info), json=True)


def _refuse_unless_held(head: Head, who: LockHolder, name: str) -> StateResponse | None:
    held = head.lock
    if held is None:
        return _conflict("a write needs the lock of this state, which is free")
    if held.holder != who or held.id != name:
        return StateResponse(409, describe_lock(held), json=True)
    return None


def _refuse_if_taken(head: Head, run: Run, who: LockHolder, version: Version) -> StateResponse | None:
    """Refuse a write without a lock if another attempt holds the lock or the state has changed since it was read."""
    held = head.lock
    if held is not None and not has_ended(run, held.holder) and (held.holder != who or held.id):
        return StateResponse(409, describe_lock(held), json=True)
    # Two writers of one attempt cannot be distinguished, so after the first conflict they need a lock.
    if any(each.holder == who and each.lasts for each in head.refused):
        return _conflict("an earlier write without the lock conflicted with another; remove -lock=false")
    newest = head.newest
    if newest is None or newest.digest == version.digest or not (newest.lineage and version.lineage):
        return None
    if newest.lineage != version.lineage or newest.serial >= version.serial:
        return _conflict("another write without the lock came first; remove -lock=false")
    return None


def _conflict(text: str) -> StateResponse:
    return StateResponse(409, msgspec.json.encode({"Info": text}), json=True)


def _info(answer: StateResponse) -> str:
    content = msgspec.json.decode(answer.body, type=dict[str, object]) if answer.json else {}
    return str(content.get("Info") or answer.body.decode(errors="replace").strip())


def _next_number(head: Head) -> int:
    return head.versions[-1].number + 1 if head.versions else 1


def _newest_within_limits(versions: tuple[Version, ...]) -> tuple[Version, ...]:
    """Return the newest versions within the limits of number and size."""
    room = MAX_STORED_BYTES
    kept: list[Version] = []
    for version in reversed(versions[-MAX_VERSIONS:]):
        room -= version.stored
        if room < 0 and kept:
            break
        kept.append(version)
    return tuple(reversed(kept))
