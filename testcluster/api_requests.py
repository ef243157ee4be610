"""GET requests to a cluster's API server, over reused connections.

A test that waits polls twenty times a second, and a TLS handshake costs both ends more than a request.
"""

import contextlib
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

# Idle connections, by the folders of their clusters.
_idle: dict[Path, list[http.client.HTTPSConnection]] = {}


def get(folder: Path, node: str, path: str) -> tuple[int, Any]:
    """Return status and body (parsed JSON, else text), as an administrator."""
    idle = _idle.setdefault(folder, [])
    while idle:
        with contextlib.suppress(ConnectionError, ssl.SSLError, http.client.HTTPException, IndexError):
            return _send(idle.pop(), path, idle)  # fails if the server closed it, or another thread took it
    tls = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    tls.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")
    return _send(http.client.HTTPSConnection(node, 6443, context=tls, timeout=10), path, idle)


def close(folder: Path) -> None:
    """Close a cluster's connections after its end."""
    for each in _idle.pop(folder, []):
        each.close()


def _send(
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
