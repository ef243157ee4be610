"""The head of one resource's state: who holds its lock, and which versions there are. Pure.

Each function is asked by an attempt of which the ledger says that it runs, and gives the head that is to be and the
answer. None of them knows a host: what they give is written only if the head is still the one that they were given.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dayfly.spec.lifecycle import Struct
from dayfly.spec.run import ALIVE, NEVER, Run, State

KEEP: Final = 20
KEEP_BYTES: Final = 8 << 20
"""Of the sealed bytes of all versions; the newest is kept whatever it has."""
MAX_ID: Final = 200
MAX_INFO: Final = 4096


class Holder(Struct, frozen=True, kw_only=True):
    """An attempt of a unit of the run, the unit by its name in the run."""

    unit: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.unit}, attempt {self.attempt}"


class Lock(Struct, frozen=True, kw_only=True):
    """As its holder has told it: `id` is Terraform's name for it, `info` what Terraform shows of it (JSON)."""

    id: str
    info: str
    holder: Holder
    at: int


class Version(Struct, frozen=True, kw_only=True):
    """One state as it was written. `blob` names its chunks; of a state that was deleted there are none."""

    number: int
    at: int
    holder: Holder
    size: int
    digest: str
    blob: str = ""
    chunks: int = 0
    stored: int = 0
    key: str = ""


class Head(Struct, frozen=True, kw_only=True):
    """Lock and versions, oldest first. `sandbox` and `namespace` are the target's, for people."""

    sandbox: str = ""
    namespace: str = ""
    resource: str = ""
    lock: Lock | None = None
    versions: tuple[Version, ...] = ()

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


class Answer(msgspec.Struct, frozen=True):
    """A status, and either a body of bytes or a sentence for people."""

    status: int
    body: bytes = b""
    json: bool = False


class Step(msgspec.Struct, frozen=True):
    """The answer, once the head is `head` (None: nothing is to be written). What of `dropped` is gone for good then."""

    answer: Answer
    head: Head | None = None
    dropped: tuple[Version, ...] = ()


_decode = msgspec.json.Decoder(Head).decode
OK: Final = Answer(200)
NONE: Final = Answer(404, b"no state has been written yet\n")


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


def lock(head: Head, run: Run, who: Holder, wanted: tuple[str, str], now: int) -> Step:
    """Take the lock; `wanted` is its id and what Terraform shows of it."""
    name, info = wanted
    held = head.lock
    if held is not None and not has_ended(run, held.holder):
        if (held.holder, held.id) == (who, name):
            return Step(OK)  # the answer to its first try was lost
        return Step(Answer(423, shown(held), json=True))
    taken = Lock(id=name, info=info, holder=who, at=now)
    return Step(OK, msgspec.structs.replace(head, lock=taken))


def unlock(head: Head, run: Run, who: Holder, name: str) -> Step:
    """Give the lock back. An empty `name` (`terraform force-unlock`) means whichever the attempt itself holds."""
    held = head.lock
    if held is None:
        return Step(OK)
    if held.holder == who and name in ("", held.id):
        return Step(OK, msgspec.structs.replace(head, lock=None))
    if has_ended(run, held.holder):
        return Step(OK, msgspec.structs.replace(head, lock=None))
    return Step(Answer(409, shown(held), json=True))


def write(head: Head, who: Holder, name: str, version: Version) -> Step:
    """Add a version, if the attempt holds the lock of that name."""
    if refusal := _unheld(head, who, name):
        return refusal
    if head.newest is not None and head.newest.digest == version.digest:
        return Step(OK)  # the answer to its first try was lost, or nothing has changed
    every = (*head.versions, msgspec.structs.replace(version, number=_next(head)))
    kept = _kept(every)
    return Step(OK, msgspec.structs.replace(head, versions=kept), every[: len(every) - len(kept)])


def delete(head: Head, who: Holder, name: str, now: int) -> Step:
    """Let there be no state; the versions before stay to be looked at."""
    if refusal := _unheld(head, who, name):
        return refusal
    if head.newest is None:
        return Step(OK)
    gone = Version(number=_next(head), at=now, holder=who, size=0, digest="")
    every = (*head.versions, gone)
    kept = _kept(every)
    return Step(OK, msgspec.structs.replace(head, versions=kept), every[: len(every) - len(kept)])


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


def ended(who: Holder) -> Answer:
    """For an attempt that asks for the lock and has ended; in the form that Terraform shows."""
    told = {"ID": f"none ({refused(who)})", "Who": "Dayfly", "Operation": "", "Info": refused(who)}
    return Answer(423, msgspec.json.encode(told), json=True)


def _unheld(head: Head, who: Holder, name: str) -> Step | None:
    held = head.lock
    if held is None or held.holder != who or held.id != name:
        text = shown(held) if held is not None else b'{"Info":"nobody holds the lock; writing needs it"}'
        return Step(Answer(409, text, json=True))
    return None


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
