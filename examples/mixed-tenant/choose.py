#!/usr/bin/env python3
"""Choose the tenant's name and its key."""

import os
import secrets
from pathlib import Path

Path("/tmp/tenant").write_text(f"{os.environ['DAYFLY_SANDBOX_NAME']}-{os.environ['DAYFLY_RESOURCE_ID']}")
Path("/tmp/key").write_text(secrets.token_urlsafe())
