"""What is said when something cannot be done: a status, a sentence, and a number to find it in the server's log.

Where somebody made several mistakes, there is a sentence for each, on a line of its own.
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

# Clients of the public API wait for these very texts after a delete.
SANDBOX_NOT_FOUND = "can't get sandbox: not found"
GROUP_NOT_FOUND = "unable to fetch routegroup: not found"


class RequestError(Exception):
    """A request that is refused: an HTTP status, a sentence, and headers that belong to the refusal."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


def not_found(path: str) -> RequestError:
    """What is answered at an address of a route group or a sandbox that is not there."""
    return RequestError(404, GROUP_NOT_FOUND if "/routegroups" in path else SANDBOX_NOT_FOUND)


def outside(scope: Scope, what: str) -> RequestError:
    """The refusal of something that a key's scope leaves out."""
    return RequestError(403, f"{what} is outside the scope of your key ({scope.words})")


def explain(fault: Exception, request_id: str) -> RequestError:
    """The refusal for whatever a handler raised. An unforeseen fault is Dayfly's own: it says so, and is logged as one.

    A store or a cluster that cannot be reached is a warning in the log.
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
                409, "somebody else changed what this needs at the same moment; nothing was changed: try again"
            )
        case OutcomeUnknownError():
            log.warning("request %s: the store went away: %s", request_id, fault)
            return RequestError(503, "the server's store went away and may have kept this; ask again, it does no harm")
        case StoreError():
            log.warning("request %s: the store failed: %s", request_id, fault)
            return RequestError(503, f"the server's store cannot be used now ({fault}); nothing was changed")
        case HostSilentError():
            log.warning("request %s: the host is silent: %s", request_id, fault)
            return RequestError(503, f"the cluster cannot be reached now ({fault}); ask again, it does no harm")
        case HostUnavailableError():
            log.warning("request %s: the host failed: %s", request_id, fault)
            return RequestError(503, f"the cluster can be told and asked nothing now ({fault}); nothing was changed")
        case _:
            log.error("request %s failed", request_id, exc_info=fault)
            return RequestError(
                500, f"an internal error of Dayfly; the server's log has the details under request {request_id}"
            )
