"""Builders of documents with shared parents, as the compiler would create them."""

import msgspec
from tests.embedded import documents as doc

from dayfly.compile.acquire_units import release_unit, stand_in
from dayfly.spec.lifecycle import MEMBER_TARGET, PARENT_TARGET, Lifecycle, Sharing, StepOrigin

START = 'echo "+ start $DAYFLY_RESOURCE_ID" >> "$JOURNAL"; printf server://1 > /tmp/server'
STOP = 'echo "+ stop $URL" >> "$JOURNAL"'
CLONE = 'echo "+ clone $DAYFLY_RESOURCE_ID $URL" >> "$JOURNAL"; printf db > /tmp/clone'
DROP = 'echo "+ drop $DAYFLY_RESOURCE_ID $URL" >> "$JOURNAL"'


def server(start=START, stop=STOP, **limits):
    """Return the document of a parent with one create step and one delete step."""
    return parent([doc.step("start", start, outputs=[("url", "/tmp/server")])], [_stop(stop)], **limits)


def _stop(script):
    return doc.step("stop", script, inputs=["url=start.url"], backoff_ms=20, idempotent=True, limit=0)


def parent(create, delete=(), name="server", **limits):
    """Return the document of a parent. `limits` are fields of `Sharing`."""
    return Lifecycle(
        target=PARENT_TARGET,
        resource=name,
        origin=StepOrigin(publisher="acme", plugin=name),
        pre_start=tuple(create),
        post_stop=tuple(delete),
        sharing=Sharing(**{"capacity": 100, **limits}),
    )


def with_parent(document, above):
    """Return the document of a run that holds the parent `above`."""
    obtained = tuple(stand_in(unit, parent=True) for unit in above.pre_start)
    names = tuple(unit.name for unit in obtained)
    own = tuple(msgspec.structs.replace(unit, after=(*names, *unit.after)) for unit in document.pre_start)
    last = release_unit(tuple(unit.name for unit in document.post_stop), (), parent=True)
    return msgspec.structs.replace(
        document,
        pre_start=(*obtained, *own),
        post_stop=(*document.post_stop, last),
        template=(msgspec.to_builtins(above),),
    )


def database(above, clone=CLONE, drop=DROP, name="db"):
    """Return the document of a resource of a sandbox with the parent `above`, one create step and one delete step."""
    return with_parent(doc.resource(name, [_clone(clone)], [_drop(drop)]), above)


def member(above, clone=CLONE, drop=DROP):
    """Return the documents of a pool member with a parent."""
    bare = Lifecycle(target=MEMBER_TARGET, resource="db", pre_start=(_clone(clone),), post_stop=(_drop(drop),))
    return (with_parent(bare, above),)


def _clone(script):
    return doc.step("clone", script, inputs=["url=parent.start.url"], outputs=[("name", "/tmp/clone")])


def _drop(script):
    return doc.step("drop", script, inputs=["url=parent.start.url"], backoff_ms=20, idempotent=True, limit=0)
