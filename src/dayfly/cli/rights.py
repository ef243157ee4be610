"""What a key may do, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def words(role: str, scope: Sequence[str]) -> str:
    """As `role member, scope name:ci-*`."""
    return f"role {role}, scope {' '.join(scope)}" if scope else f"role {role}"
