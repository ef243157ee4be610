"""The head of one resource's state: who holds its lock, and which versions there are. Pure.

Each function is asked by an attempt of which the ledger says that it runs, and gives the head that is to be and the
answer. None of them knows a host: what they give is written only if the head is still the one that they were given.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.run import ALIVE, NEVER, Run, State

KEEP: Final = 20
KEEP_REFUSALS: Final = 10
"""The first and the last refused writes of one state that are recorded."""
KEEP_BYTES: Final = 8 << 20
"""Of the sealed bytes of all versions; the newest is kept whatever it has."""
MAX_ID: Final = 200
MAX_INFO: Final = 4096


class Holder(WireStruct, frozen=True, kw_only=True):
    """An attempt of a unit of the run, the unit by its name in the run."""

    unit: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.unit}, attempt {self.attempt}"


class Lock(WireStruct, frozen=True, kw_only=True):
    """As its holder has told it: `id` is Terraform's name for it, `info` what Terraform shows of it (JSON).

    Without an `id` the attempt holds it because it wrote without a lock (`-lock=false`).
    """

    id: str
    info: str
    holder: Holder
    at: int


class Version(WireStruct, frozen=True, kw_only=True):
    """One state as it was written. `blob` names its chunks; of a state that was deleted there are none.

    `lineage`, `serial` and the number of `resources` are Terraform's; empty and 0 if they cannot be read.
    """

    number: int
    at: int
    holder: Holder
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
    """A state that an attempt wrote and that was not stored. `lasts`: no later write of that attempt can replace it."""

    holder: Holder
    at: int
    message: str
    lasts: bool = False


class Head(WireStruct, frozen=True, kw_only=True):
    """Lock, versions and refused writes, oldest first. `sandbox` and `namespace` are the target's, for people.

    `readers` are the units that have read the state, or learned that there is none.
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
        """What is there to be read; None if nothing was written, or it was deleted."""
        return self.versions[-1] if self.versions and self.versions[-1].blob else None

    @property
    def stored(self) -> int:
        """How many sealed bytes there are in all."""
        return sum(version.stored for version in self.versions)


class DamagedError(Exception):
    """A head is not what was written; the text says which."""


def decode(data: bytes, where: str) -> Head:
    """A head as it was encoded; `where` is where it lies, for people.

    Raises:
        DamagedError: it is none.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(f"the head of a state is not what was written ({where}): {error}") from None


def damaged(error: DamagedError, reader: tuple[str, int]) -> Head:
    """Return a head in which a write of the attempt `reader` was refused, in place of the damaged one."""
    who = Holder(unit=reader[0], attempt=reader[1])
    return Head(refused=(Refusal(holder=who, at=0, message=str(error), lasts=True),))


class StateResponse(msgspec.Struct, frozen=True):
    """A status, and either a body of bytes or a sentence for people."""

    status: int
    body: bytes = b""
    json: bool = False


class StateStep(msgspec.Struct, frozen=True):
    """The answer, once the head is `head` (None: nothing is to be written). What of `dropped` is gone for good then."""

    answer: StateResponse
    head: Head | None = None
    dropped: tuple[Version, ...] = ()


_decode = msgspec.json.Decoder(Head).decode
OK: Final = StateResponse(200)
NONE: Final = StateResponse(404, b"no state has been written yet\n")


def runs(run: Run, who: Holder) -> bool:
    """Whether the ledger says that this attempt was let go and has not ended."""
    record = run.unit(who.unit)
    return record.attempt == who.attempt and record.state in ALIVE


def has_ended(run: Run, who: Holder) -> bool:
    """Whether the ledger proves that this attempt runs no more. A next one is claimed only over such a proof."""
    record = run.units.get(who.unit, NEVER)
    return record.attempt > who.attempt or (record.attempt == who.attempt and record.state in (State.DONE, State.VOID))


def refused(who: Holder) -> str:
    """Why an attempt that does not run may do nothing."""
    return f"{who} has ended, so it may no longer read, lock or write this state; a later attempt may hold it"


def read(head: Head, who: Holder) -> StateStep:
    """Record that the unit has read the state."""
    if who.unit in head.readers:
        return StateStep(OK)
    return StateStep(OK, msgspec.structs.replace(head, readers=(*head.readers, who.unit)))


def lock(head: Head, run: Run, who: Holder, wanted: tuple[str, str], now: int) -> StateStep:
    """Take the lock; `wanted` is its id and what Terraform shows of it."""
    name, info = wanted
    held = head.lock
    if held is not None and not has_ended(run, held.holder):
        if (held.holder, held.id) == (who, name):
            return StateStep(OK)  # the answer to its first try was lost
        if held.holder != who or held.id:
            return StateStep(StateResponse(423, shown(held), json=True))
    taken = Lock(id=name, info=info, holder=who, at=now)
    return StateStep(OK, msgspec.structs.replace(head, lock=taken))


def unlock(head: Head, run: Run, who: Holder, name: str) -> StateStep:
    """Give the lock back. An empty `name` (`terraform force-unlock`) means whichever the attempt itself holds."""
    held = head.lock
    if held is None:
        return StateStep(OK)
    if held.holder == who and name in ("", held.id):
        return StateStep(OK, msgspec.structs.replace(head, lock=None))
    if has_ended(run, held.holder):
        return StateStep(OK, msgspec.structs.replace(head, lock=None))
    return StateStep(StateResponse(409, shown(held), json=True))


def write(head: Head, run: Run, who: Holder, name: str, version: Version) -> StateStep:
    """Add a version, if the attempt holds the lock of that name.

    Without a name (`-lock=false`) the attempt takes the lock if it is free, and keeps it until its end.
    """
    if refusal := _unheld(head, who, name) if name else _unfree(head, run, who, version):
        return refuse(head, who, refusal, version.at)
    keeps = bool(name) or (head.lock is not None and head.lock.holder == who)
    lock = head.lock if keeps else Lock(id="", info="{}", holder=who, at=version.at)
    refused = tuple(each for each in head.refused if each.holder != who or each.lasts)
    after = msgspec.structs.replace(head, lock=lock, refused=refused)
    if head.newest is not None and head.newest.digest == version.digest:
        return StateStep(
            OK, None if after == head else after
        )  # the answer to its first try was lost, or nothing has changed
    every = (*head.versions, msgspec.structs.replace(version, number=_next(head)))
    kept = _kept(every)
    return StateStep(OK, msgspec.structs.replace(after, versions=kept), every[: len(every) - len(kept)])


def refuse(
    head: Head, who: Holder, answer: StateResponse, now: int, message: str = "", *, lasts: bool = True
) -> StateStep:
    """Refuse a write with that answer, and record it: its resources may be in no other state."""
    if any(each.holder == who and (each.lasts or not lasts) for each in head.refused):
        return StateStep(answer)
    refusal = Refusal(holder=who, at=now, message=message or _info(answer), lasts=lasts)
    every = (*(each for each in head.refused if each.holder != who), refusal)
    kept = every if len(every) <= 2 * KEEP_REFUSALS else (*every[:KEEP_REFUSALS], *every[-KEEP_REFUSALS:])
    return StateStep(answer, msgspec.structs.replace(head, refused=kept))


def delete(head: Head, who: Holder, name: str, now: int) -> StateStep:
    """Let there be no state; the versions before stay to be looked at."""
    if refusal := _unheld(head, who, name) if name else _conflict("a state is deleted only by the holder of its lock"):
        return StateStep(refusal)
    if head.newest is None:
        return StateStep(OK)
    gone = Version(number=_next(head), at=now, holder=who, size=0, digest="")
    every = (*head.versions, gone)
    kept = _kept(every)
    return StateStep(OK, msgspec.structs.replace(head, versions=kept), every[: len(every) - len(kept)])


def shown(held: Lock) -> bytes:
    """What Terraform is told of a lock that it did not get: its holder's own words, and who that is to us.

    Of all that it shows the ID alone, so that has to say it.
    """
    try:
        told = msgspec.json.decode(held.info or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        told = {}
    who = f"held by {held.holder}, which has not ended"
    told |= {"ID": f"{held.id} ({who})", "Info": who}
    return msgspec.json.encode(told)


def ended(who: Holder) -> StateResponse:
    """For an attempt that asks for the lock and has ended; in the form that Terraform shows."""
    told = {"ID": f"none ({refused(who)})", "Who": "Dayfly", "Operation": "", "Info": refused(who)}
    return StateResponse(423, msgspec.json.encode(told), json=True)


def _unheld(head: Head, who: Holder, name: str) -> StateResponse | None:
    held = head.lock
    if held is None:
        return _conflict("the lock of this state is not held; writing needs it")
    if held.holder != who or held.id != name:
        return StateResponse(409, shown(held), json=True)
    return None


def _unfree(head: Head, run: Run, who: Holder, version: Version) -> StateResponse | None:
    """Why an attempt may not write without a lock: another holder, or a write that it has not read."""
    held = head.lock
    if held is not None and not has_ended(run, held.holder) and (held.holder != who or held.id):
        return StateResponse(409, shown(held), json=True)
    # Two writers of one attempt look the same, so after the first conflict only a lock can separate them.
    if any(each.holder == who and each.lasts for each in head.refused):
        return _conflict("an earlier write without the lock was in conflict; remove -lock=false")
    newest = head.newest
    if newest is None or newest.digest == version.digest or not (newest.lineage and version.lineage):
        return None
    if newest.lineage != version.lineage or newest.serial >= version.serial:
        return _conflict("another write without the lock came first; remove -lock=false")
    return None


def _conflict(text: str) -> StateResponse:
    return StateResponse(409, msgspec.json.encode({"Info": text}), json=True)


def _info(answer: StateResponse) -> str:
    told = msgspec.json.decode(answer.body, type=dict[str, object]) if answer.json else {}
    return str(told.get("Info") or answer.body.decode(errors="replace").strip())


def _next(head: Head) -> int:
    return head.versions[-1].number + 1 if head.versions else 1


def _kept(versions: tuple[Version, ...]) -> tuple[Version, ...]:
    """The newest, as many as may be kept."""
    room = KEEP_BYTES
    kept: list[Version] = []
    for version in reversed(versions[-KEEP:]):
        room -= version.stored
        if room < 0 and kept:
            break
        kept.append(version)
    return tuple(reversed(kept))
