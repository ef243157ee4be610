#!/usr/bin/env python3
"""Print a JSON line for each registry, with DAYFLY_RESOURCE_ID only of that resource."""

import json
import os
import re
from pathlib import Path

folder, wanted = Path(os.environ["FOLDER"]), os.environ.get("DAYFLY_RESOURCE_ID")
found = [file.name for file in folder.iterdir()] if folder.is_dir() else []
names = [name for name in found if re.fullmatch(r"[0-9a-f]{26}\.(json|part)", name) and wanted in (None, "", name[:26])]
for name in sorted(names):
    print(json.dumps({"id": name[:26], "name": name}))
print(json.dumps({"complete": True, "count": len(names)}))
