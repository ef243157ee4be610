"""Exit codes of the sender. Pure; used by the sender and by `read`."""

import enum
from collections.abc import Collection

ORDER = "DAYFLY_WEBHOOK"
"""The environment variable with the sender's order."""


class ExitCode(enum.IntEnum):
    """The exit codes that do not encode an HTTP status."""

    CA_UNREADABLE = 8
    TLS_FAILED = 9
    NOT_SENT = 10
    ADDRESS_REFUSED = 11
    ANSWER_LOST = 12
    TOO_LARGE = 13
    NOT_JSON = 14
    CUT = 15
    SLOW = 16
    UNFIT = 17
    JOB_FAILED = 18
    JOB_UNFINISHED = 19
    INPUT_UNFIT = 20
    CANCELLED = 21
    ODD_STATUS = 22
    NAME_NOT_FOUND = 23
    CONNECTION_REFUSED = 24
    CONNECTION_TIMED_OUT = 25
    UNREACHABLE = 26
    CERTIFICATE_UNTRUSTED = 27
    CERTIFICATE_EXPIRED = 28
    CERTIFICATE_MISMATCH = 29


# Ranges of HTTP statuses: first status, its exit code, length of the range.
_STATUS_RANGES = ((200, 30, 30), (300, 60, 40), (400, 100, 100), (500, 200, 56))
TOO_MANY_REQUESTS = 429
_INCONCLUSIVE = frozenset({408, 425, TOO_MANY_REQUESTS})


def code_of_status(status: int) -> int:
    """Return the exit code for an unsuccessful HTTP status."""
    for first, code, count in _STATUS_RANGES:
        if first <= status < first + count:
            return code + status - first
    return ExitCode.ODD_STATUS


def status_of(code: int) -> int:
    """Return the HTTP status that an exit code encodes; 0 if it encodes none."""
    for first, begin, count in _STATUS_RANGES:
        if begin <= code < begin + count:
            return first + code - begin
    return 0


def is_inconclusive(status: int, failed: Collection[int]) -> bool:
    """Return whether the server may have carried out the request despite this status."""
    return (status in _INCONCLUSIVE or status >= 500) and status not in failed
