"""Mutants that nothing could notice, each with the reason: by name, as `mutants` prints it."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
