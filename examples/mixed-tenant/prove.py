#!/usr/bin/env python3
"""Request the tenant's account with its own key. A response proves that name, key and registration match."""

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
