"""Create a sandbox without the pool and one with it, print how long each takes to be ready, and delete both.

The time is from the request to the report that the sandbox is ready, as a client sees it.
"""

import sys
import time

from dayfly.client import Client


def seconds_until_ready(dayfly: Client, name: str, folder: str, **resource: str) -> float:
    """Create a sandbox with a database, and return the seconds until it is ready."""
    database = {"name": "db", "plugin": "sqlite-notes@1.0.0", "params": {"folder": folder}, **resource}
    begun = time.perf_counter()
    dayfly.sandboxes.apply({"name": name, "spec": {"cluster": "local", "resources": [database]}})
    dayfly.sandboxes.wait_ready(name)
    return time.perf_counter() - begun


with Client() as dayfly:
    dayfly.sandboxes.list()  # connects to the server, so that no measured request has to
    first = seconds_until_ready(dayfly, "first", sys.argv[1], pool="never")
    second = seconds_until_ready(dayfly, "second", sys.argv[1])
    print(f"The first sandbox created its database: ready after {1000 * first:.0f} ms.")
    print(f"The second sandbox took one from the pool: ready after {1000 * second:.0f} ms.")
    for name in ("first", "second"):
        dayfly.sandboxes.delete(name)
    for name in ("first", "second"):
        dayfly.sandboxes.wait_gone(name)
