"""Queries for the rows of one organisation.

All handlers build their queries here, so no query can omit the organisation. PostgreSQL enforces the same rule by
row-level security (`databases.set_org`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Executable, Row, Table

NO_ORG = ""
"""The organisation of queries outside all organisations: PostgreSQL shows them no rows."""
ALL_ORGS = "*"
"""Selects the rows of all organisations. No organisation can have this name."""


class Rows:
    """The rows that one transaction may read and change: those of one organisation, or all for `ALL_ORGS`."""

    def __init__(self, connection: Connection, org: str) -> None:
        self.org = org
        self.connection = connection

    def select(self, *entities: Any) -> sa.Select[Any]:
        """Build a query for tables or columns, restricted to the organisation's rows of each table."""
        query = sa.select(*entities)
        if self.org == ALL_ORGS:
            return query
        for table in query.columns_clause_froms:  # `get_final_froms` would compile the query each time
            query = query.where(table.c.org == self.org)
        return query

    def find(self, table: Table, **values: object) -> Row[Any] | None:
        """Return the organisation's only row whose columns have these values; None if there is none."""
        owner = {} if self.org == ALL_ORGS else {"org": self.org}
        return self.connection.execute(_select_by(table, *owner, *values), {**owner, **values}).one_or_none()

    def insert(self, table: Table, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Insert rows for the organisation."""
        rows = [values] if isinstance(values, Mapping) else values
        owner = {} if self.org == ALL_ORGS else {"org": self.org}
        if rows:
            self.connection.execute(sa.insert(table), [{**row, **owner} for row in rows])

    def update(self, table: Table) -> sa.Update:
        """Build an update of the organisation's rows."""
        change = sa.update(table)
        return change if self.org == ALL_ORGS else change.where(table.c.org == self.org)

    def delete(self, table: Table) -> sa.Delete:
        """Build a deletion of the organisation's rows."""
        deletion = sa.delete(table)
        return deletion if self.org == ALL_ORGS else deletion.where(table.c.org == self.org)

    def execute(self, query: Executable) -> CursorResult[Any]:
        """Execute a query that was built by these methods."""
        found: CursorResult[Any] = self.connection.execute(query)
        return found


@functools.cache  # most of the time of such a query would be needed to build it
def _select_by(table: Table, *columns: str) -> sa.Select[Any]:
    return sa.select(table).where(*(table.c[name] == sa.bindparam(name) for name in columns))
