"""What a plugin's author tells its readers: Markdown that comes beside a definition and means nothing to a run.

It is no part of what a version *is*: it reaches no run, and may be corrected while the version stays as published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.spec.errors import Path, SpecError
from dayfly.spec.parsing.convert import wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "README.md"
ANNOTATION = "dayfly.dev/readme"
"""Where an object of a cluster has it: an annotation may change where a spec may not."""
MAX_BYTES = 64 * 1024

_AT_TOP: Path = ("readme",)
_IN_CLUSTER: Path = ("metadata", "annotations", ANNOTATION)


def read(data: Mapping[str, Any], spelled: Mapping[Path, str]) -> str | None:
    """The README in a plugin's document, in either form; None where it says nothing of one.

    Raises:
        SpecError: it is no text, or too long.
    """
    keys, found = _AT_TOP, data.get("readme")
    if found is None:
        metadata = data.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        keys, found = _IN_CLUSTER, annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    if found is None:
        return None
    if not isinstance(found, str):
        raise wrong_type("str", found, keys, spelled)
    check(found.encode(), keys)
    return found


def check(content: bytes, keys: Path = ()) -> None:
    """Hold it to its bound.

    Raises:
        SpecError: it is too long.
    """
    if len(content) > MAX_BYTES:
        raise SpecError(f"has {len(content)} bytes, and a README at most {MAX_BYTES}: shorten it", keys)
