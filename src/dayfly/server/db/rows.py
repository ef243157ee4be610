"""One organisation's rows: every query that a handler makes is built here, so none can leave the organisation out.

PostgreSQL is told whose transaction it is, too (`store`), and shows it no other organisation's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Executable, Table

NOBODY = ""
"""For what concerns none: PostgreSQL shows it no row at all."""
EVERYWHERE = "*"
"""For what concerns all: whose key it is, and what is owed to hosts. No organisation can be called so."""


class Rows:
    """What one transaction may see and change: the rows of one organisation, or of all for `EVERYWHERE`."""

    def __init__(self, connection: Connection, org: str) -> None:
        self.org = org
        self.connection = connection

    def select(self, *what: Any) -> sa.Select[Any]:
        """A query for tables or columns; of each table that is named only our rows."""
        query = sa.select(*what)
        if self.org == EVERYWHERE:
            return query
        for table in query.columns_clause_froms:  # not the final ones: to know those compiles the query, each time
            query = query.where(table.c.org == self.org)
        return query

    def insert(self, table: Table, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Write new rows, ours."""
        rows = [values] if isinstance(values, Mapping) else values
        ours = {} if self.org == EVERYWHERE else {"org": self.org}
        if rows:
            self.connection.execute(sa.insert(table), [{**row, **ours} for row in rows])

    def update(self, table: Table) -> sa.Update:
        """A change of our rows."""
        change = sa.update(table)
        return change if self.org == EVERYWHERE else change.where(table.c.org == self.org)

    def delete(self, table: Table) -> sa.Delete:
        """The end of rows of ours."""
        end = sa.delete(table)
        return end if self.org == EVERYWHERE else end.where(table.c.org == self.org)

    def execute(self, query: Executable) -> CursorResult[Any]:
        """Carry out a query that was built here."""
        found: CursorResult[Any] = self.connection.execute(query)
        return found
