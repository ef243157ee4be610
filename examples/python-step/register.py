#!/usr/bin/env python3
"""Register the wanted accounts, each with a password of its own."""

import json
import os
import secrets
import sys
from pathlib import Path

try:
    wanted = json.loads(Path("/tmp/in/wanted.json").read_text())
    names = [account["name"] for account in wanted]
except (ValueError, TypeError, KeyError) as fault:
    sys.exit(f'the param wanted must be like [{{"name": "ada", "role": "admin"}}]: {type(fault).__name__}: {fault}')

accounts = [account | {"password": secrets.token_urlsafe()} for account in wanted]
# Only this user may read it. It is renamed into place, so it is always complete.
registry = Path(os.environ["FOLDER"]) / f"{os.environ['DAYFLY_RESOURCE_ID']}.json"
part = registry.with_suffix(".part")
part.touch(mode=0o600)
part.write_text(json.dumps(accounts))
part.rename(registry)

Path("/tmp/accounts.json").write_text(json.dumps(accounts))
Path("/tmp/names.json").write_text(json.dumps(names))
print(f"registered {', '.join(names)} in {registry}")
