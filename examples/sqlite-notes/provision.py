#!/usr/bin/env python3
"""Create an empty database named after the resource's id, so that `drop` finds it even without outputs."""

import os
import sqlite3
import sys
from pathlib import Path

folder = Path(os.environ["FOLDER"])
if not folder.is_absolute() or not folder.is_dir():
    sys.exit(f"the param folder is {str(folder)!r}; give the absolute path of a folder that exists")

database = folder / f"{os.environ['DAYFLY_RESOURCE_ID']}.db"
with sqlite3.connect(database) as connection:
    connection.execute("VACUUM")  # SQLite creates the file only at the first write

Path("/tmp/path").write_text(str(database))
print(f"made {database}")
