#!/usr/bin/env python3
"""Create the tables that the notes application expects, and its first rows."""

import os
import sqlite3
from pathlib import Path

NOTES = ["Dayfly made this database for one sandbox", "It is gone when the sandbox is"]

with sqlite3.connect(os.environ["NOTES_DB"]) as connection:
    connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    connection.executemany("INSERT INTO notes (text) VALUES (?)", [(note,) for note in NOTES])
    (count,) = connection.execute("SELECT count(*) FROM notes").fetchone()

Path("/tmp/notes").write_text(str(count))
print(f"seeded {count} notes")
