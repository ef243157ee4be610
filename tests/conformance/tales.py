"""Stories that mean the same wherever they happen: documents, how their scripts behave, and what their owner does."""

from typing import NamedTuple

from dayfly.execute.outputs import RUN_OUTPUT_LIMIT
from dayfly.spec.lifecycle import Lifecycle, Unit
from embedded import documents as doc


class Behaviour(NamedTuple):
    """What a script does, whichever host runs it: fail at its first starts, write its outputs, or go on for ever."""

    fails: int = 0
    outputs: dict[str, bytes] = {}
    endless: bool = False


class Act(NamedTuple):
    """What happens next: until something is said, of the run or of a unit, or else what the owner does.

    After `until` all that is said is written down, after `await` it is not: it may be another word a moment later.
    """

    what: str
    of: str = ""
    said: str = ""


class Tale(NamedTuple):
    """One story."""

    documents: tuple[Lifecycle, ...]
    acts: tuple[Act, ...]
    scripts: dict[str, Behaviour] = {}
    kept: tuple[Unit, ...] = ()


def step(name: str, *, reads: tuple[str, ...] = (), outputs: tuple[str, ...] = (), **limits: object) -> Unit:
    """A script that reads `unit.output` into the variable OUTPUT."""
    places = [(output, f"/tmp/conformance.{name}.{output}") for output in outputs]
    return doc.step(
        name, image="busybox:1", inputs=[f"{each.split('.')[1]}={each}" for each in reads], outputs=places, **limits
    )


def toy(name: str, *reads: str) -> Unit:
    """A unit of a kind that no host has by itself."""
    given = tuple(doc.given(f"{each.split('.')[1]}={each}") for each in reads)
    return Unit(name=name, kind="toy", inputs=given)


READY, DELETE, GONE = Act("until", "", "AllDesiredWorkloadsReady"), Act("delete"), Act("gone")
MAKE = step("make", outputs=("url",))
URL = {"url": b"db://1"}


def _life(*create: Unit, delete: tuple[Unit, ...] = (step("drop", reads=("make.url",)),)) -> tuple[Lifecycle, ...]:
    return (doc.resource("db", create, delete),)


def _until(of: str, said: str) -> Act:
    return Act("until", of, said)


TALES = {
    "created and cleaned up": Tale(
        _life(MAKE, step("seed", reads=("make.url",))), (READY, DELETE, GONE), {"db/make": Behaviour(outputs=URL)}
    ),
    "a create fails": Tale(
        _life(MAKE, step("seed", reads=("make.url",))),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs=URL), "db/seed": Behaviour(fails=9)},
    ),
    "a create that may be tried again": Tale(
        _life(step("make", outputs=("url",), idempotent=True, limit=3)),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(fails=2, outputs=URL)},
    ),
    "deleted while it creates": Tale(
        _life(step("make", outputs=("url",), grace_ms=1_000)),
        (_until("db/make", "Running"), DELETE, GONE),
        {"db/make": Behaviour(endless=True)},
    ),
    "an input that no variable can hold": Tale(
        (
            doc.resource("db", (MAKE,), ()),
            doc.resource("web", (step("seed", reads=("db:make.url",)),), (step("undo"),)),
        ),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs={"url": b"a\0b"})},
    ),
    "an input too large for a variable": Tale(
        _life(MAKE, step("seed", reads=("make.url",)), delete=()),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs={"url": b"x" * 65_537})},
    ),
    "a cleanup that cannot be given its input": Tale(
        _life(MAKE),
        (READY, DELETE, _until("db/drop", "Running"), Act("abandon", said="the database is gone"), GONE),
        {"db/make": Behaviour(outputs={"url": b"a\0b"}), "db/drop": Behaviour(endless=True)},
    ),
    "more outputs than a run may have": Tale(
        _life(
            step("make", outputs=("url",)),
            step("more", reads=("make.none",), outputs=("url",)),
            step("most", reads=("more.none",), outputs=("url",)),
            delete=(),
        ),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {f"db/{name}": Behaviour(outputs={"url": b"x" * (RUN_OUTPUT_LIMIT // 2)}) for name in ("make", "more", "most")},
    ),
    "a cleanup that is stuck": Tale(
        _life(MAKE, delete=(step("drop", idempotent=True, limit=0, backoff_ms=100),)),
        (
            READY,
            DELETE,
            Act("await", "", "CleanupStuck"),
            _until("db/drop", "WaitingToRetry"),
            Act("abandon", said="the database is gone"),
            GONE,
        ),
        {"db/make": Behaviour(outputs=URL), "db/drop": Behaviour(fails=99)},
    ),
    "a kind that this host has not": Tale(
        (doc.resource("db", (doc.Unit(name="call", kind="webhook"),), ()),),
        (_until("db/call", "UnsupportedKind"), DELETE, GONE),
    ),
    "a kind that is new": Tale(
        (doc.resource("db", (toy("make"), step("seed", reads=("make.out",))), (toy("undo"),)),),
        (READY, DELETE, GONE),
        kept=(Unit(name="play", kind="toy"),),
    ),
}
