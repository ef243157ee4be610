#!/usr/bin/env python3
"""Create a database and fill it. With many migrations or much data, this is the slow part of a test suite."""

import os
import sqlite3
from pathlib import Path

folder = Path.home() / ".cache" / "shop-db"
folder.mkdir(parents=True, exist_ok=True)
database = folder / f"{os.environ['DAYFLY_RESOURCE_ID']}.db"
products = ((number, f"product {number}", number % 100) for number in range(1, 200_001))
with sqlite3.connect(database) as connection:
    connection.execute("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL)")
    connection.execute("CREATE TABLE purchase (product INTEGER NOT NULL REFERENCES product, buyer TEXT NOT NULL)")
    connection.executemany("INSERT INTO product VALUES (?, ?, ?)", products)
    connection.execute("CREATE INDEX product_by_name ON product (name)")

Path("/tmp/path").write_text(str(database))
