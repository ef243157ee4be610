"""Stories that mean the same wherever they happen: documents, how their scripts behave, and what their owner does."""

import base64
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from tests.embedded import documents as doc
from tests.embedded.parent_documents import parent, with_parent
from tests.webhook.webhook_sender import unit

from dayfly.execute.outputs import RUN_OUTPUT_LIMIT
from dayfly.spec.lifecycle import (
    As,
    Baseline,
    ForkUnit,
    ForkValue,
    Lifecycle,
    Unit,
    UnitInput,
    UnitTimeouts,
)


class Behaviour(NamedTuple):
    """The behaviour of a script on either host: it fails at its first starts, writes its outputs, or never ends.

    For a webhook it is the behaviour of the server: its response has the outputs as members.
    """

    fails: int = 0
    outputs: dict[str, bytes] = {}
    endless: bool = False
    # Status codes of a webhook's server in order, the last one repeatedly. 0 closes the connection.
    statuses: tuple[int, ...] = ()
    # Its script names an interpreter that does not exist, or its webhook an address that is not allowed.
    broken: bool = False


class Act(NamedTuple):
    """One action of a story: wait for a report of the run or of a unit, or change something.

    `until` records all reports afterwards; `await` does not, because they may change a moment later. The owner's
    actions are `delete`, `abandon`, `expire`, `lapse` (the lease is not renewed) and `retry` (of a unit, now). `closed`
    waits until the close is recorded, `settle` delivers the lost answer of a toy, and `follow` changes the baseline and
    waits until the fork has followed.
    """

    what: str
    of: str = ""
    said: str = ""


class Story(NamedTuple):
    """One story. `dies_at` names a unit between whose first claim and start the host ends, and begins again.

    `lost` are toys whose answer does not come by itself.
    """

    documents: tuple[Lifecycle, ...]
    acts: tuple[Act, ...]
    scripts: dict[str, Behaviour] = {}
    kept: tuple[Unit, ...] = ()
    dies_at: str = ""
    lost: frozenset[str] = frozenset()


NO_INTERPRETER = "#!/no/such\ntrue\n"


def step(
    name: str,
    *,
    reads: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    told: tuple[UnitInput, ...] = (),
    **limits: object,
) -> Unit:
    """Return a script step that reads `unit.output` into the variable OUTPUT, with the values of forks in `told`."""
    places = [(output, f"/tmp/conformance.{name}.{output}") for output in outputs]
    given = [*(f"{each.split('.')[1]}={each}" for each in reads), *told]
    return doc.step(name, image="busybox:1", inputs=given, outputs=places, **limits)


def behaves(unit: Unit, how: Behaviour, begun: str) -> str:
    """Return a shell script with this behaviour. A script that never ends first records that it has `begun`."""
    if how.broken:
        return NO_INTERPRETER
    lines = ["#!/bin/sh", f'[ "$DAYFLY_ATTEMPT" -gt {how.fails} ] || exit 1']
    for output in unit.outputs:
        value = how.outputs.get(output.name, b"")
        if len(set(value)) == 1 and len(value) > 1:
            lines.append(f"head -c {len(value)} /dev/zero | tr '\\0' {chr(value[0])} > {output.path}")
        else:
            lines.append(f"echo {base64.b64encode(value).decode()} | base64 -d > {output.path}")
    if how.endless:
        lines += [begun, "exec sleep 7200"]
    return "\n".join((*lines, ""))


def call(
    name: str,
    *,
    reads: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    told: tuple[UnitInput, ...] = (),
    **more: Any,
) -> Unit:
    """Return a webhook that reads `unit.output` into its path, and values of forks into its body.

    The host sets the address of its server.
    """
    made = unit(
        "https://server.example/",
        name=name,
        path=[{"$input": each.split(".")[1]} for each in reads],
        outputs={output: {"json_path": f"$.{output}"} for output in outputs},
        **({"body": {item.name: {"$input": item.name} for item in told}} if told else {}),
        **more,
    )
    given = tuple(doc.given(f"{each.split('.')[1]}={each}") for each in reads)
    return msgspec.structs.replace(made, inputs=(*given, *told))


def toy(name: str, *reads: str) -> Unit:
    """A unit of a kind that no host has by itself."""
    given = tuple(doc.given(f"{each.split('.')[1]}={each}") for each in reads)
    return Unit(name=name, kind="toy", inputs=given)


SHOP = "shop"
APP = Baseline(kind="Deployment", namespace=SHOP, name="app")
FORK = Unit(name="app", kind="fork", timeouts=UnitTimeouts(grace_ms=1_000), fork=ForkUnit(baseline=APP))
READY, DELETE, GONE = Act("until", "", "AllDesiredWorkloadsReady"), Act("delete"), Act("gone")
TOLD = tuple(
    UnitInput(
        name=word.lower(),
        fork=ForkValue(fork_of=APP, expression=f"{{{{.{word}}}}}"),
        as_=As(env=word.upper()),
    )
    for word in ("Name", "Ready")
)
MAKE = step("make", outputs=("url",))
URL = {"url": b"db://1"}


def _life(*create: Unit, delete: tuple[Unit, ...] = (step("drop", reads=("make.url",)),)) -> tuple[Lifecycle, ...]:
    return (doc.resource("db", create, delete),)


def with_templates(documents: Iterable[Lifecycle]) -> Iterator[Lifecycle]:
    """Yield documents with those of their pool members and parents."""
    for document in documents:
        yield document
        yield from with_templates(document.template_documents())


def _broken(unit: Unit) -> Unit:
    """Return the same step with a script that cannot be executed."""
    assert unit.exec is not None, "only a script names an interpreter"
    return msgspec.structs.replace(unit, exec=msgspec.structs.replace(unit.exec, script=NO_INTERPRETER))


def _until(of: str, said: str) -> Act:
    return Act("until", of, said)


_BROKEN = Behaviour(broken=True)
_CHILD = (
    with_parent(
        doc.resource("db", (step("clone", reads=("parent.start.url",)),), (step("drop", reads=("parent.start.url",)),)),
        parent((step("start", outputs=("url",)),), (step("stop"),)),
    ),
)

STORIES = {
    "created and cleaned up": Story(
        _life(MAKE, step("seed", reads=("make.url",))), (READY, DELETE, GONE), {"db/make": Behaviour(outputs=URL)}
    ),
    "a child with its parent": Story(_CHILD, (READY, DELETE, GONE), {"server/start": Behaviour(outputs=URL)}),
    "a parent fails": Story(_CHILD, (_until("", "ResourceFailed"), DELETE, GONE), {"server/start": Behaviour(fails=9)}),
    "a create fails": Story(
        _life(MAKE, step("seed", reads=("make.url",))),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs=URL), "db/seed": Behaviour(fails=9)},
    ),
    "a program that cannot be executed": Story(
        _life(_broken(MAKE), delete=(_broken(step("drop")),)),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": _BROKEN, "db/drop": _BROKEN},
    ),
    "a program that cannot be executed behind one that ran": Story(
        _life(MAKE, _broken(step("seed", reads=("make.url",)))),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs=URL), "db/seed": _BROKEN},
    ),
    "a hook before the stop that cannot be executed": Story(
        (*_life(MAKE), doc.hooks(pre_stop=[step("drain", idempotent=True, limit=0, backoff_ms=10)])),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(outputs=URL), "drain": _BROKEN},
        kept=(FORK,),
    ),
    "a server that nothing may be sent to": Story(
        _life(call("make"), delete=(call("drop", method="DELETE", idempotent=True),)),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {name: Behaviour(broken=True) for name in ("db/make", "db/drop")},
    ),
    "a create that may be tried again": Story(
        _life(step("make", outputs=("url",), idempotent=True, limit=3)),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(fails=2, outputs=URL)},
    ),
    "deleted while it creates": Story(
        _life(step("make", outputs=("url",), grace_ms=1_000)),
        (_until("db/make", "Running"), DELETE, GONE),
        {"db/make": Behaviour(endless=True)},
    ),
    "an input that no variable can hold": Story(
        (
            doc.resource("db", (MAKE,), ()),
            doc.resource("web", (step("seed", reads=("db:make.url",)),), (step("undo"),)),
        ),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs={"url": b"a\0b"})},
    ),
    "an input too large for a variable": Story(
        _life(MAKE, step("seed", reads=("make.url",)), delete=()),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(outputs={"url": b"x" * 65_537})},
    ),
    "a cleanup that cannot be given its input": Story(
        _life(MAKE),
        (READY, DELETE, _until("db/drop", "Running"), Act("abandon", said="the database is gone"), GONE),
        {"db/make": Behaviour(outputs={"url": b"a\0b"}), "db/drop": Behaviour(endless=True)},
    ),
    "more outputs than a run may have": Story(
        _life(
            step("make", outputs=("url",)),
            step("more", reads=("make.none",), outputs=("url",)),
            step("most", reads=("more.none",), outputs=("url",)),
            delete=(),
        ),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {f"db/{name}": Behaviour(outputs={"url": b"x" * (RUN_OUTPUT_LIMIT // 2)}) for name in ("make", "more", "most")},
    ),
    "a cleanup that is stuck": Story(
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
    "a kind that this host has not": Story(
        (doc.resource("db", (doc.Unit(name="thing", kind="balloon"),), ()),),
        (_until("db/thing", "UnsupportedKind"), DELETE, GONE),
    ),
    "created and cleaned up by webhooks": Story(
        _life(
            call("make", outputs=("url",)),
            step("seed", reads=("make.url",)),
            delete=(call("drop", reads=("make.url",), method="DELETE", idempotent=True),),
        ),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(outputs=URL, statuses=(201,)), "db/drop": Behaviour(statuses=(204,))},
    ),
    "a server that says no": Story(
        _life(call("make"), delete=()),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(statuses=(422,))},
    ),
    "a server that does not answer and then does": Story(
        _life(call("make", idempotent=True), delete=()),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(statuses=(0, 503, 201))},
    ),
    "a kind that is new": Story(
        (doc.resource("db", (toy("make"), step("seed", reads=("make.out",))), (toy("undo"),)),),
        (READY, DELETE, GONE),
        kept=(Unit(name="play", kind="toy"),),
    ),
    "a fork between its hooks": Story(
        (
            *_life(MAKE),
            doc.hooks(post_start=[step("warm", reads=("db:make.url",))], pre_stop=[step("drain")]),
        ),
        (READY, DELETE, GONE),
        {"db/make": Behaviour(outputs=URL)},
        kept=(FORK,),
    ),
    "all four events around a fork": Story(
        (
            *_life(MAKE),
            doc.hooks(
                pre_start=[step("before", reads=("db:make.url",))],
                post_start=[
                    call("announce", outputs=("id",), told=TOLD),
                    step("warm", reads=("announce.id",), told=TOLD),
                ],
                pre_stop=[step("drain", told=TOLD)],
                post_stop=[call("withdraw", reads=("announce.id",), method="DELETE", idempotent=True)],
            ),
        ),
        (READY, DELETE, GONE),
        {
            "db/make": Behaviour(outputs=URL),
            "announce": Behaviour(outputs={"id": b"r-1"}, statuses=(201,)),
            "withdraw": Behaviour(statuses=(204,)),
        },
        kept=(FORK,),
    ),
    "a fork that never came": Story(
        (*_life(MAKE), doc.hooks(pre_stop=[step("drain")])),
        (_until("", "ResourceFailed"), DELETE, GONE),
        {"db/make": Behaviour(fails=9)},
        kept=(FORK,),
    ),
    "a fork follows its baseline": Story((), (READY, Act("follow"), READY, DELETE, GONE), kept=(FORK,)),
    "an answer that comes late": Story(
        (doc.resource("db", (toy("make"), step("seed", reads=("make.out",))), (step("drop", reads=("make.out",)),)),),
        (_until("db/make", "OutcomeUnknown"), Act("settle", "db/make"), READY, DELETE, GONE),
        lost=frozenset({"db/make"}),
    ),
    "deleted before the answer has come": Story(
        (doc.resource("db", (toy("make"), step("seed", reads=("make.out",))), (step("drop", reads=("make.out",)),)),),
        (
            _until("db/make", "OutcomeUnknown"),
            DELETE,
            Act("closed"),
            _until("", "OutcomeUnknown"),
            Act("settle", "db/make"),
            GONE,
        ),
        lost=frozenset({"db/make"}),
    ),
    "the host ends between a claim and its start": Story(
        _life(MAKE), (READY, DELETE, GONE), {"db/make": Behaviour(outputs=URL)}, dies_at="db/make"
    ),
    "its time to live is over": Story(_life(MAKE), (READY, Act("expire"), GONE), {"db/make": Behaviour(outputs=URL)}),
    "nobody renews its lease": Story(_life(MAKE), (READY, Act("lapse"), GONE), {"db/make": Behaviour(outputs=URL)}),
    "a cleanup is tried again now": Story(
        _life(MAKE, delete=(step("drop", idempotent=True, limit=0, backoff_ms=600_000),)),
        (READY, DELETE, _until("db/drop", "WaitingToRetry"), Act("retry", "db/drop"), GONE),
        {"db/make": Behaviour(outputs=URL), "db/drop": Behaviour(fails=1)},
    ),
    "given up while it creates": Story(
        _life(step("make", outputs=("url",), grace_ms=1_000)),
        (_until("db/make", "Running"), Act("abandon", said="nobody needs it"), GONE),
        {"db/make": Behaviour(endless=True)},
    ),
}
