"""What the forks of this machine derive from, as it is stored: for whoever compiles wishes or hands baselines over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.control.tables import workloads
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from dayfly.control.rows import Rows

_decode = msgspec.json.Decoder(Workload).decode


def decode(document: str | bytes) -> Workload | None:
    """A stored one; None if it cannot be read, as what a newer release has written or a disk has lost."""
    try:
        return _decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def known(rows: Rows) -> dict[tuple[str, str], Workload | None]:
    """All baselines by namespace and name; None for what cannot be read, which holds up none of the others."""
    return {(row.namespace, row.name): decode(row.document) for row in rows.execute(rows.select(workloads))}


def readable(rows: Rows) -> dict[tuple[str, str], Workload]:
    """Those of them that can be read."""
    return {place: workload for place, workload in known(rows).items() if workload is not None}
