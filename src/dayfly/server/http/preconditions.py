"""Preconditions of HTTP (RFC 9110, section 13): a change applies only to the version that its client has read.

The ETag of an answer is `"VERSION.DIGEST"`: the version of the stored object, and the digest of the whole answer. A GET
compares both. A change compares only the version, since a new status of a sandbox is no edit.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.server.http.errors import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request

_TAGS = re.compile(r'\s*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*(?:,\s*|$))+')
_TAG = re.compile(r'(W/)?"([^"]*)"')


class Tagged(NamedTuple):
    """The answer to a GET, and the version of the stored object."""

    data: Any
    version: str


class Preconditions(NamedTuple):
    """The headers If-Match and If-None-Match; empty without them."""

    match: str = ""
    none_match: str = ""

    def check(self, version: str | None) -> None:
        """Refuse a change if the preconditions do not hold for the stored version (None: there is no object).

        Raises:
            RequestError: 412.
        """
        if self.match and not _names(self.match, version, strong=True):
            problem = "the object has been changed" if version else "the object does not exist"
            raise RequestError(412, f"If-Match: {problem}; read it again, and repeat the change with the new ETag")
        if self.none_match and _names(self.none_match, version):
            raise RequestError(412, "If-None-Match: the object already exists; nothing was changed")

    def refuse_match(self) -> None:
        """Refuse If-Match for an endpoint without versions.

        Raises:
            RequestError: 412.
        """
        if self.match:
            raise RequestError(412, "If-Match: this endpoint has no ETag; leave the header out")


ANY = Preconditions()


def read(request: Request) -> Preconditions:
    """Return the preconditions of a request.

    Raises:
        RequestError: a header is neither `*` nor a list of ETags.
    """
    found = [", ".join(request.headers.getlist(name)) for name in ("if-match", "if-none-match")]
    for name, value in zip(("If-Match", "If-None-Match"), found, strict=True):
        if value and value.strip() != "*" and not _TAGS.fullmatch(value):
            raise RequestError(400, f"{name}: write * or the ETag of an answer, with its quotation marks")
    return Preconditions(*found)


def compute_tag(version: str, body: bytes) -> str:
    """Return the ETag of an answer."""
    return f'"{version}.{hashlib.sha256(body).hexdigest()[:16]}"'


def is_unchanged(request: Request, tag: str) -> bool:
    """Return whether the client of a GET has an answer with this ETag."""
    wanted = read(request).none_match
    return wanted.strip() == "*" or any(f'"{opaque}"' == tag for _, opaque in _TAG.findall(wanted))


def _names(header: str, version: str | None, *, strong: bool = False) -> bool:
    """Return whether the header names that version. With `strong`, weak tags never match."""
    if version is None or header.strip() == "*":
        return version is not None
    return any(opaque.rpartition(".")[0] == version and not (strong and weak) for weak, opaque in _TAG.findall(header))
