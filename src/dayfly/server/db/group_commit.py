"""Group commit of one SQLite file: each write has its own savepoint.

If the database rejects a group, for example because the disk is full, each of its writes gets its own transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import exc

from dayfly.lib.group_commit import CommitOutcome, GroupCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Engine

    Write = Callable[[Connection], Any]

MAX_GROUP_SIZE = 64


def group_commit(engine: Engine, transact: Callable[[Write], Any]) -> GroupCommit[Write]:
    """Return the group commit of the file that `engine` writes to; `transact` executes one write in a transaction."""

    def commit_one(write: Write) -> CommitOutcome:
        try:
            return CommitOutcome(transact(write))
        except BaseException as error:  # noqa: BLE001 - returned to the caller of this write
            return CommitOutcome(error=error)

    def commit(writes: Sequence[Write]) -> list[CommitOutcome]:
        if len(writes) > 1:
            try:
                with engine.begin() as connection:
                    return [_in_savepoint(connection, write) for write in writes]
            except exc.SQLAlchemyError:
                pass
        return [commit_one(write) for write in writes]

    return GroupCommit(commit, "store writes", MAX_GROUP_SIZE)


def _in_savepoint(connection: Connection, write: Write) -> CommitOutcome:
    """Execute one write of a group. A database error aborts the group."""
    try:
        with connection.begin_nested():
            return CommitOutcome(write(connection))
    except exc.SQLAlchemyError:
        raise
    except BaseException as error:  # noqa: BLE001 - returned to the caller of this write
        return CommitOutcome(error=error)
