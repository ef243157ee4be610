"""The README of a plugin: Markdown for readers, beside the plugin's definition.

It is not a part of a version: runs do not have it, and it may be corrected after the version was published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.spec.errors import Path, SpecError
from dayfly.spec.parsing.convert import wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "README.md"
ANNOTATION = "dayfly.dev/readme"
"""Annotation of the README in a cluster, because annotations may change and specs may not."""
MAX_BYTES = 64 * 1024

_AT_TOP: Path = ("readme",)
_IN_CLUSTER: Path = ("metadata", "annotations", ANNOTATION)


def read(data: Mapping[str, Any], spelled: Mapping[Path, str]) -> str | None:
    """Return the README of a plugin's document, in either form; None if there is none.

    Raises:
        SpecError: It is not text, or too long.
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
    """Check its length.

    Raises:
        SpecError: It is too long.
    """
    if len(content) > MAX_BYTES:
        raise SpecError(f"has {len(content)} bytes, and a README at most {MAX_BYTES}: shorten it", keys)
