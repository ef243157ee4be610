"""What the forks of this machine derive from, as it is stored: for whoever compiles wishes or hands baselines over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from dayfly.control.tables import workloads
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from sqlalchemy import Connection

decode = msgspec.json.Decoder(Workload).decode


def known(connection: Connection, org: str) -> dict[tuple[str, str], Workload]:
    """All baselines by namespace and name."""
    rows = connection.execute(sa.select(workloads).where(workloads.c.org == org))
    return {(row.namespace, row.name): decode(row.document) for row in rows}
