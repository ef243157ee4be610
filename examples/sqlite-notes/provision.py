#!/usr/bin/env python3
"""Make an empty database that is called by its resource's id, so that `drop` finds it even if nothing is reported."""

import os
import sqlite3
import sys
from pathlib import Path

folder = Path(os.environ["FOLDER"])
if not folder.is_absolute() or not folder.is_dir():
    sys.exit(f"the param folder is {str(folder)!r}; give the absolute path of a folder that exists")

database = folder / f"{os.environ['DAYFLY_RESOURCE_ID']}.db"
with sqlite3.connect(database) as connection:
    connection.execute("VACUUM")  # an empty database has no file until something is written

Path("/tmp/path").write_text(str(database))
print(f"made {database}")
