"""Notifications between servers that share a PostgreSQL: a cluster's mailbox has changed.

A notification may be lost, and a transaction pooler delivers none; polling finds missed changes. It is part of the
transaction that changes the mailbox, so it arrives when the change can be read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import exc

from dayfly.server.db.databases import driver_connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from sqlalchemy import Connection, Engine

CHANNEL = "dayfly_mailbox"
RETRY_S = 5.0

log = logging.getLogger(__name__)


def notify(connection: Connection, org: str, cluster: str) -> None:
    """Notify all servers of the database once the transaction is committed."""
    if connection.dialect.name == "postgresql":
        query = sa.text("SELECT pg_notify(:channel, :payload)")
        connection.execute(query, {"channel": CHANNEL, "payload": f"{org}/{cluster}"})


class Notifications:
    """A connection that receives notifications.

    Args:
        engine: Opens connections without transactions.
        workers: Threads for blocking calls.
    """

    def __init__(self, engine: Engine, workers: Executor) -> None:
        self._engine = engine
        self._workers = workers
        self._kept: Connection | None = None

    async def receive(self, handle: Callable[[str, str], None]) -> None:
        """Call `handle` with the organisation and cluster of each notification, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._workers, self._connect)
                await self._read_until_lost(loop, handle)
                log.info("the connection for notifications was lost; connecting again")
            except exc.SQLAlchemyError as fault:
                log.debug("no connection for notifications: %s", fault)
            finally:
                self.close()
            await asyncio.sleep(RETRY_S)

    async def _read_until_lost(self, loop: asyncio.AbstractEventLoop, handle: Callable[[str, str], None]) -> None:
        assert self._kept is not None, "it was just opened"
        connection, failure = driver_connection(self._kept).pgconn, self._kept.dialect.loaded_dbapi.Error
        socket, lost = connection.socket, asyncio.Event()

        def read() -> None:
            try:
                connection.consume_input()
            except failure:
                loop.remove_reader(socket)
                lost.set()
                return
            while (notification := connection.notifies()) is not None:
                org, _, cluster = notification.extra.decode().partition("/")
                handle(org, cluster)

        loop.add_reader(socket, read)
        try:
            await lost.wait()
        finally:
            loop.remove_reader(socket)

    def _connect(self) -> None:
        self._kept = self._engine.connect()
        self._kept.detach()  # the pool's connections are all for requests
        self._kept.exec_driver_sql(f"LISTEN {CHANNEL}")

    def close(self) -> None:
        """Close the connection."""
        if self._kept is not None:
            driver_connection(self._kept).close()
            self._kept.invalidate()
            self._kept = None
