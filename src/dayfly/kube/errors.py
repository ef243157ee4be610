"""What can become of a request, by cause: the type tells what to do next, the text whom to ask."""

from __future__ import annotations

import re
from typing import NamedTuple

# The authorizer's own words, as Kubernetes has had them since it has roles.
_NOT_GRANTED = re.compile(r'is forbidden: User "[^"]*" cannot \w+ (?:resource|path) "')
_UNPROCESSABLE, _BAD_REQUEST = 422, 400
# How the API server begins the message of a webhook's refusal, and what it writes of a body that it cannot decode.
_BY_ADMISSION = "admission webhook "
_UNDECODABLE = " cannot be handled as a "
# An address or a port that another Service has may become free.
_ALLOCATED = "already allocated"
# Causes of the server's own validation that no state of the cluster changes: k8s.io/apimachinery, validation/field.
_FIELD_ERRORS = frozenset(
    f"FieldValue{each}"
    for each in ("Invalid", "Required", "NotSupported", "Forbidden", "TooLong", "TooMany", "TypeInvalid", "Duplicate")
)


class Cause(NamedTuple):
    """One finding of a refusal: `field` is a path like `spec.containers[0].name`, empty where there is none."""

    reason: str
    field: str
    message: str


class ApiError(Exception):
    """A request that did not succeed. `status` is 0 where no answer came."""

    def __init__(self, request: str, message: str, *, status: int = 0, reason: str = "") -> None:
        said = f"{status} {reason}".strip() if status else reason
        super().__init__(f"{request}: {said}: {message}" if said else f"{request}: {message}")
        self.request = request
        self.message = message
        self.status = status
        self.reason = reason


class Refused(ApiError):
    """The server said no, and changed nothing. Others of this family say why; this one is any other 4xx."""

    def __init__(
        self, request: str, message: str, *, status: int, reason: str = "", causes: tuple[Cause, ...] = ()
    ) -> None:
        super().__init__(request, message, status=status, reason=reason)
        self.causes = causes

    @property
    def is_permanent(self) -> bool:
        """Whether the object itself is invalid: the server would refuse it in every state of the cluster.

        Admission rules refuse with the same status codes, and can be changed.
        """
        if self.message.startswith(_BY_ADMISSION):
            return False
        if self.status == _UNPROCESSABLE:
            return bool(self.causes) and all(
                each.field and each.reason in _FIELD_ERRORS and _ALLOCATED not in each.message for each in self.causes
            )
        return self.status == _BAD_REQUEST and _UNDECODABLE in self.message


class Conflict(Refused):
    """The object is not as the request presumed (resource version, UID, field manager): read again, decide again."""


class AlreadyExists(Refused):
    """The name is taken, perhaps by our own lost request: read it and look whose it is."""


class NotFound(Refused):
    """There is no such object."""


class NotServed(Refused):
    """The server has no such kind now. Of objects of the kind that says nothing: they may be there, out of sight."""


# For whoever only tells of an object, and need not know whether it is gone.
ABSENT = NotFound, NotServed


class Gone(Refused):
    """The version asked for is compacted away (410): list again."""


class Invalid(Refused):
    """The object breaks the rules of its kind (422); `causes` name the fields."""


class Forbidden(Refused):
    """Not allowed to this user, by an admission rule, by quota, or because the namespace is ending (403)."""

    @property
    def namespace_ending(self) -> bool:
        """Whether the only reason is that the namespace is being deleted."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    @property
    def not_granted(self) -> bool:
        """Whether a right is missing, which somebody can grant; admission rules and quotas say no in other words."""
        return _NOT_GRANTED.search(self.message) is not None


class Unauthorized(Refused):
    """The credentials are not accepted (401), fresh ones neither."""


class Throttled(ApiError):
    """Too many requests (429, or our own rate limit): not executed. Wait `retry_after` seconds.

    `by_all` if it is said of whatever we ask: the server itself is too busy.
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


class ServerTrouble(ApiError):
    """The server could not be asked, or could not answer a read. Nothing was changed."""


class OutcomeUnknown(ApiError):
    """A change was sent and no telling answer came: it may have happened. Read, then decide; never repeat."""
