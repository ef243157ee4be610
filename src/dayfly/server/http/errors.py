"""Errors of requests: an HTTP status and a message. The answer also has a request ID, which is in the server's log.

If a body has several errors, the message has one line for each.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dayfly.server.db.store import OutcomeUnknownError, StoreError, WriteConflictError
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError, HostSilentError, HostUnavailableError

if TYPE_CHECKING:
    from dayfly.server.access.scopes import Scope

log = logging.getLogger(__name__)

# Clients of the public API wait for exactly these texts after a delete.
SANDBOX_NOT_FOUND = "can't get sandbox: not found"
GROUP_NOT_FOUND = "unable to fetch routegroup: not found"
POOL_NOT_FOUND = "pool not found"


class RequestError(Exception):
    """A refused request: HTTP status, message, and headers of the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


def not_found(path: str) -> RequestError:
    """Return the error for a sandbox or route group that does not exist. Keys with a scope change no other runs."""
    return RequestError(404, GROUP_NOT_FOUND if "/routegroups" in path else SANDBOX_NOT_FOUND)


def out_of_scope(scope: Scope, what: str) -> RequestError:
    """Return the error for an object outside a key's scope."""
    return RequestError(403, f"{what} is outside the scope of your key ({scope.description})")


def to_request_error(fault: Exception, request_id: str) -> RequestError:
    """Return the error for an exception of a handler.

    Failures of the store or a cluster are logged as warnings. Any other exception is an internal error of Dayfly and is
    logged with its traceback.
    """
    match fault:
        case RequestError():
            return fault
        case SpecError():
            return RequestError(400, "\n".join(fault.lines()))
        case DocumentsRefusedError():
            return RequestError(400, f"the cluster cannot run this: {fault}")
        case WriteConflictError():
            return RequestError(
                409, "another request changed the same objects at the same time; nothing was changed: try again"
            )
        case OutcomeUnknownError():
            log.warning("request %s: the connection to the store was lost: %s", request_id, fault)
            return RequestError(
                503, "the server lost its connection to the store, and the change may be stored; it is safe to retry"
            )
        case StoreError():
            log.warning("request %s: the store failed: %s", request_id, fault)
            return RequestError(503, f"the server cannot use its store now ({fault}); nothing was changed")
        case HostSilentError():
            log.warning("request %s: the host does not answer: %s", request_id, fault)
            return RequestError(503, f"the cluster does not answer now ({fault}); it is safe to retry")
        case HostUnavailableError():
            log.warning("request %s: the host is unavailable: %s", request_id, fault)
            return RequestError(503, f"the cluster is unavailable now ({fault}); nothing was changed")
        case _:
            log.error("request %s failed", request_id, exc_info=fault)
            return RequestError(
                500, f"an internal error of Dayfly; the server's log has the details under request {request_id}"
            )
