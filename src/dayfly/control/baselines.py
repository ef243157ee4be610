"""What the forks of this machine derive from, as it is stored: for whoever compiles wishes or hands baselines over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.control.tables import workloads
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from dayfly.control.rows import Rows

decode = msgspec.json.Decoder(Workload).decode


def known(rows: Rows) -> dict[tuple[str, str], Workload]:
    """All baselines by namespace and name."""
    return {(row.namespace, row.name): decode(row.document) for row in rows.execute(rows.select(workloads))}
