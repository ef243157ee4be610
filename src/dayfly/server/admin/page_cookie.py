"""The cookie that a browser on the page has: no script reads it, and no other site's request brings it along."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response


class Cookie:
    """Found in requests, and handed out with answers; `tls`: whether browsers come by TLS."""

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls

    def given(self, request: Request) -> str:
        """What it holds; empty without one."""
        cookies = request.cookies
        return cookies.get(_name(request.headers, tls=True)) or (
            "" if self._tls else cookies.get(_name(request.headers, tls=False), "")
        )

    def handed(self, request: Request, response: Response, value: str, seconds: int) -> Response:
        """The same answer with the cookie, for so long; an empty value takes it away."""
        # A proxy in front may speak TLS for us; then the browser says so.
        tls = self._tls or request.headers.get("origin", "").startswith("https:")
        response.set_cookie(
            _name(request.headers, tls=tls),
            value,
            max_age=seconds,
            path="/",
            secure=tls,
            httponly=True,
            samesite="strict",
        )
        return response


def _name(headers: Headers, *, tls: bool) -> str:
    """The cookie's name. A browser tells cookies of one machine's ports apart by nothing else."""
    if tls:
        return "__Host-dayfly"
    _, _, port = headers.get("host", "").rpartition(":")
    return f"dayfly-{port if port.isascii() and port.isdigit() else 80}"
