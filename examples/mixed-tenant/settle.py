#!/usr/bin/env python3
"""Fetch the last bill. While the tenant is open there is none, so this fails and is retried."""

import os
import sys
import urllib.error
import urllib.request

try:
    url = f"{os.environ['SERVER']}/v1/bills/{os.environ['DAYFLY_RESOURCE_ID']}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as refusal:
    if refusal.code != 404:
        sys.exit(f"the service answers {refusal.code}: {refusal.read().decode()}")
    print("there is no bill, because no tenant was registered")
