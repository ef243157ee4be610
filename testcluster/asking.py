"""A GET to a cluster's API server, on connections that are kept.

Who waits for something asks twenty times a second, and to shake hands takes both ends longer than to ask.
"""

import contextlib
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

# Connections that nobody uses now, by the folders of their clusters.
_idle: dict[Path, list[http.client.HTTPSConnection]] = {}


def get(folder: Path, node: str, path: str) -> tuple[int, Any]:
    """Status and body (JSON parsed, else text), as an administrator."""
    idle = _idle.setdefault(folder, [])
    while idle:
        with contextlib.suppress(ConnectionError, ssl.SSLError, http.client.HTTPException, IndexError):
            return _ask(idle.pop(), path, idle)  # else the server had ended it since, or another thread has it now
    tls = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    tls.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")
    return _ask(http.client.HTTPSConnection(node, 6443, context=tls, timeout=10), path, idle)


def close(folder: Path) -> None:
    """A cluster's connections, once it has ended."""
    for each in _idle.pop(folder, []):
        each.close()


def _ask(
    connection: http.client.HTTPSConnection, path: str, idle: list[http.client.HTTPSConnection]
) -> tuple[int, Any]:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    except BaseException:
        connection.close()
        raise
    idle.append(connection)
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(body) if is_json else body.decode()
