"""How a sender ends, in the one byte that a process has for it. Pure; known to the sender and to who reads its end."""

import enum
from collections.abc import Collection

ORDER = "DAYFLY_WEBHOOK"
"""The variable in which a sender finds what it is to do."""


class ExitCode(enum.IntEnum):
    """The ends that are no status of an answer."""

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


# First status of a row, its first code, and how many there are.
_ROWS = ((200, 30, 30), (300, 60, 40), (400, 100, 100), (500, 200, 56))
_OPEN = frozenset({408, 425, 429})


def of_status(status: int) -> int:
    """The code that tells a status which was no success."""
    for first, code, count in _ROWS:
        if first <= status < first + count:
            return code + status - first
    return ExitCode.ODD_STATUS


def status_of(code: int) -> int:
    """The status that a code tells; 0 if it tells none."""
    for first, begin, count in _ROWS:
        if begin <= code < begin + count:
            return first + code - begin
    return 0


def is_open(status: int, failed: Collection[int]) -> bool:
    """Whether such an answer leaves open what has become of the request."""
    return (status in _OPEN or status >= 500) and status not in failed
