"""Builders of documents with pool members, as the compiler would create them."""

import msgspec
from tests.embedded import documents as doc

from dayfly.link.wire import Offer
from dayfly.spec.lifecycle import MEMBER_TARGET, AcquireUnit, Lifecycle, StepOrigin, Target, Unit, UnitTimeouts
from dayfly.spec.resource_pool import KIND, ResourcePoolSpec

NO_LIMIT = UnitTimeouts(run_ms=0)


def template(create, delete=(), name="postgres"):
    """Return the documents of a pool member."""
    return (
        Lifecycle(
            target=MEMBER_TARGET,
            resource=name,
            origin=StepOrigin(publisher="acme", plugin=name),
            pre_start=tuple(create),
            post_stop=tuple(delete),
        ),
    )


def pooled(name, member, claim=(), undo=()):
    """Return the document of a resource that a pool member provides. `claim` and `undo` are the holder's own steps."""
    (source,) = member
    stand_ins = tuple(
        Unit(
            name=unit.name,
            kind="acquire",
            inputs=tuple(item for item in unit.inputs if item.from_ is not None),
            outputs=unit.outputs,
            timeouts=NO_LIMIT,
            acquire=AcquireUnit(step=unit.name),
        )
        for unit in source.pre_start
    )
    every = tuple(unit.name for unit in stand_ins)
    own = tuple(msgspec.structs.replace(unit, after=every) for unit in claim)
    release = Unit(
        name="release",
        kind="acquire",
        timeouts=NO_LIMIT,
        acquire=AcquireUnit(),
        after=tuple(unit.name for unit in undo),
    )
    return Lifecycle(
        target=doc.TARGET,
        resource=name,
        pre_start=(*stand_ins, *own),
        post_stop=(*undo, release),
        template=tuple(msgspec.to_builtins(member)),
    )


def sandbox(name, *documents):
    """Return the offer of a sandbox. Its UID is its name."""
    target = msgspec.structs.replace(doc.TARGET, name=name, uid=name)
    return msgspec.structs.replace(doc.offer(*documents, uid=name), name=name, target=target)


def pool(name, member, ready=1, **more):
    """Return the offer of a pool. Its UID is its name."""
    spec = {key: more.pop(key) for key in ("auto", "max_age", "schedule") if key in more}
    return Offer(
        uid=name,
        name=name,
        target=Target(kind=KIND, name=name, uid=name),
        documents=member,
        pool=ResourcePoolSpec(plugin="postgres", ready=ready, **spec),
        **more,
    )
