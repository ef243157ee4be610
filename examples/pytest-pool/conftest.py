"""A private database for each test function."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def shop(dayfly_resource: Callable[[str], Any]) -> Iterator[sqlite3.Connection]:
    """Return a connection to a database that only this test uses."""
    database = dayfly_resource("shop-db")
    connection = sqlite3.connect(database["path"])
    yield connection
    connection.close()
