#!/usr/bin/env python3
"""Print a JSON line for each open account, with DAYFLY_RESOURCE_ID only of that resource. Its name ends with the id."""

import json
import os
import re
import urllib.request

wanted = os.environ.get("DAYFLY_RESOURCE_ID", "")
request = urllib.request.Request(
    f"{os.environ['SERVER']}/v1/tenants", headers={"Authorization": f"Bearer {os.environ['TENANTS_TOKEN']}"}
)
with urllib.request.urlopen(request, timeout=30) as answer:
    tenants = json.load(answer)
found = [(match[1], name) for name in tenants if (match := re.search(r"-([0-9a-f]{26})$", name))]
items = [{"id": id_, "name": name} for id_, name in found if wanted in ("", id_)]
for each in items:
    print(json.dumps(each))
print(json.dumps({"complete": True, "count": len(items)}))
