"""Errors of requests, by cause. The type tells the caller what to do next; the text names the cause."""

from __future__ import annotations

import re
from typing import NamedTuple

# The message of the RBAC authorizer, unchanged since Kubernetes has RBAC.
_NOT_GRANTED = re.compile(r'is forbidden: User "[^"]*" cannot \w+ (?:resource|path) "')
_UNPROCESSABLE, _BAD_REQUEST = 422, 400
# The start of the message of an admission webhook's refusal, and a part of the message for an undecodable body.
_BY_ADMISSION = "admission webhook "
_UNDECODABLE = " cannot be handled as a "
# An address or port of another Service may become free.
_ALLOCATED = "already allocated"
# Causes of validation errors that do not depend on other objects: k8s.io/apimachinery, validation/field.
_FIELD_ERRORS = frozenset(
    f"FieldValue{each}"
    for each in ("Invalid", "Required", "NotSupported", "Forbidden", "TooLong", "TooMany", "TypeInvalid", "Duplicate")
)


class Cause(NamedTuple):
    """One cause of a refusal; `field` is a path like `spec.containers[0].name`, or empty."""

    reason: str
    field: str
    message: str


class ApiError(Exception):
    """A failed request. `status` is 0 if there was no response."""

    def __init__(self, request: str, message: str, *, status: int = 0, reason: str = "") -> None:
        said = f"{status} {reason}".strip() if status else reason
        super().__init__(f"{request}: {said}: {message}" if said else f"{request}: {message}")
        self.request = request
        self.message = message
        self.status = status
        self.reason = reason


class Refused(ApiError):
    """The server refused the request and changed nothing. Subclasses name the cause; this class is any other 4xx."""

    def __init__(
        self, request: str, message: str, *, status: int, reason: str = "", causes: tuple[Cause, ...] = ()
    ) -> None:
        super().__init__(request, message, status=status, reason=reason)
        self.causes = causes

    @property
    def is_permanent(self) -> bool:
        """Whether the object itself is invalid, so that the server would refuse it in every state of the cluster.

        Admission rules, which can change, refuse with the same status codes; they do not count.
        """
        if self.message.startswith(_BY_ADMISSION):
            return False
        if self.status == _UNPROCESSABLE:
            return bool(self.causes) and all(
                each.field and each.reason in _FIELD_ERRORS and _ALLOCATED not in each.message for each in self.causes
            )
        return self.status == _BAD_REQUEST and _UNDECODABLE in self.message


class Conflict(Refused):
    """The object differs from the request's resource version, UID or field manager: read it again, then decide."""


class AlreadyExists(Refused):
    """The name is taken, perhaps by our own request whose response was lost: read the object and check its owner."""


class NotFound(Refused):
    """The object does not exist."""


class NotServed(Refused):
    """The server does not serve the kind now. Its objects may still exist in the store."""


# For callers that only report on an object and need not know whether it is deleted.
ABSENT = NotFound, NotServed


class Gone(Refused):
    """The requested version has expired (410): list again."""


class Invalid(Refused):
    """The object breaks the rules of its kind (422); `causes` name the fields."""


class Forbidden(Refused):
    """The request is not permitted: by RBAC, an admission rule or a quota, or in a terminating namespace (403)."""

    @property
    def is_namespace_ending(self) -> bool:
        """Whether the only reason is that the namespace is being deleted."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    @property
    def is_not_granted(self) -> bool:
        """Whether an RBAC permission is missing. Admission rules and quotas refuse with other messages."""
        return _NOT_GRANTED.search(self.message) is not None


class Unauthorized(Refused):
    """The credentials were refused (401), also after a refresh."""


class Throttled(ApiError):
    """The request was not executed because of too many requests (429, or our own rate limit). Wait `retry_after`
    seconds.

    `by_all` is true if the limit applies to all our requests because the server is overloaded.
    """

    def __init__(
        self,
        request: str,
        message: str,
        *,
        retry_after: float,
        status: int = 0,
        reason: str = "",
        by_all: bool = False,
    ) -> None:
        super().__init__(request, message, status=status, reason=reason)
        self.retry_after = retry_after
        self.by_all = by_all


class ServerError(ApiError):
    """The server is unreachable, or a read failed. Nothing was changed."""


class OutcomeUnknown(ApiError):
    """A change was sent, but its response was lost. Read the object, then decide; never repeat the change."""
