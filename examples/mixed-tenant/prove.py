#!/usr/bin/env python3
"""Ask for the tenant's account, with its own key: an answer proves that name, key and registration fit together."""

import os
import urllib.request
from pathlib import Path

wanted = urllib.request.Request(
    f"{os.environ['SERVER']}/v1/tenants/{os.environ['ID']}",
    headers={"Authorization": f"Bearer {os.environ['KEY']}"},
)
with urllib.request.urlopen(wanted, timeout=30) as answer:
    account = answer.read()
Path("/tmp/account.json").write_bytes(account)
print(account.decode())
