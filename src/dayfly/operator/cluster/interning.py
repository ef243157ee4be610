"""Share equal parts of a run's objects in memory: most runs are idle, so their number determines memory use.

The decoder creates each string separately. Without sharing, each of thousands of Sandboxes has its own "Ready", and the
same UID five times.
"""

import sys
from typing import Any

import msgspec

from dayfly.operator.cluster.objects import DocumentObject, RunObject, SandboxObject

# Fields whose values are often equal in different runs. Other values are only shared within one run.
_COMMON = frozenset(
    {"api_version", "finalizers", "kind", "message", "namespace", "phase", "progress", "reason", "status", "type"}
)
# Longer strings rarely occur twice.
_MAX_INTERNED_LENGTH = 64
# Lists of finalizers that are shared between runs. The bound protects against users who invent finalizers.
_lists: dict[tuple[str, ...], list[str]] = {}
_MAX_LISTS = 64


def share(run: RunObject, documents: list[DocumentObject], sandbox: SandboxObject | None) -> None:
    """Replace equal parts of these objects by one instance. Values do not change; specs with scripts are skipped."""
    target = run.ledger.target
    linked = [document.spec.target is target for document in documents]
    linked += [sandbox.metadata.uid is target.uid] if sandbox is not None else []
    if linked and all(linked):
        return  # none of the objects is new since the last call
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
    """Return an equal value whose parts are shared with the known ones."""
    match value:
        case str() if type(value) is str:
            value = sys.intern(value) if name in _COMMON and len(value) <= _MAX_INTERNED_LENGTH else value
            return known.setdefault(value, value)
        case msgspec.Struct():
            for field in value.__struct_fields__:
                before = getattr(value, field)
                after = _fold(before, known, field)
                if after is not before:
                    msgspec.structs.force_setattr(value, field, after)
        case list():
            value[:] = [_fold(each, known, name) for each in value]
            if name == "finalizers" and (len(_lists) < _MAX_LISTS or tuple(value) in _lists):
                return _lists.setdefault(tuple(value), value)
        case tuple():
            return tuple([_fold(each, known, name) for each in value])
        case dict():
            for key, each in value.items():
                value[key] = _fold(each, known)
    return value
