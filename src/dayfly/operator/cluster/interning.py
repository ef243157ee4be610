"""What the objects of a run have in common, held once: most runs rest, and their number is what memory goes by.

Decoding makes each string anew: thousands of Sandboxes would each have a `Ready` of their own, and a UID five times.
"""

import sys
from typing import Any

import msgspec

from dayfly.operator.cluster.objects import DocumentObject, RunObject, SandboxObject

# What many objects say alike; whatever else is the same is so among those of one run alone.
_COMMON = frozenset(
    {"api_version", "finalizers", "kind", "message", "namespace", "phase", "progress", "reason", "status", "type"}
)
# Longer than that is told of one thing alone.
_SHORT = 64
# Finalizers that objects have, by themselves; whoever makes up more has lists of his own.
_lists: dict[tuple[str, ...], list[str]] = {}
_MOST = 64


def share(run: RunObject, documents: list[DocumentObject], sandbox: SandboxObject | None) -> None:
    """Have them hold equal parts once. They stay equal to what they were; scripts are not gone through."""
    target = run.ledger.target
    linked = [document.spec.target is target for document in documents]
    linked += [sandbox.metadata.uid is target.uid] if sandbox is not None else []
    if linked and all(linked):
        return  # none of them has come since they were gone through
    known: dict[Any, Any] = {}
    if sandbox is not None:
        _fold(sandbox.metadata, known)
        _fold(sandbox.status, known)
    _fold(run, known)
    for document in documents:
        _fold(document.metadata, known)
        if document.spec.target == run.ledger.target:
            msgspec.structs.force_setattr(document.spec, "target", run.ledger.target)


def _fold(value: Any, known: dict[Any, Any], name: str = "") -> Any:
    """The same value, of parts that are known if there are equal ones."""
    match value:
        case str() if type(value) is str:
            value = sys.intern(value) if name in _COMMON and len(value) <= _SHORT else value
            return known.setdefault(value, value)
        case msgspec.Struct():
            for field in value.__struct_fields__:
                before = getattr(value, field)
                after = _fold(before, known, field)
                if after is not before:
                    msgspec.structs.force_setattr(value, field, after)
        case list():
            value[:] = [_fold(each, known, name) for each in value]
            if name == "finalizers" and (len(_lists) < _MOST or tuple(value) in _lists):
                return _lists.setdefault(tuple(value), value)
        case tuple():
            return tuple([_fold(each, known, name) for each in value])
        case dict():
            for key, each in value.items():
                value[key] = _fold(each, known)
    return value
