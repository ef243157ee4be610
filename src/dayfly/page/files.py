"""Serves the built files of the page with their HTTP headers."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

AT = "/page"
DASHBOARD = "/sandbox/name"
"""Below this path of a dashboard, Signadot's command line links to sandboxes."""
STATIC = Path(__file__).parent / "static"
UNBUILT = "The page is not built in this checkout. Build it with: make page"

# Only scripts and styles of our files, no requests to other servers, and no embedding in frames.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The names of these files contain a digest of their content.
_HASHED = "assets/"
_FOREVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


class _File(NamedTuple):
    data: bytes
    type: str
    caching: str


class PageFiles:
    """Serves files below `/page`. For other paths it serves `index.html`, because the page does its own routing."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(Request(scope))(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET and HEAD are allowed\n", 405, {**HEADERS, "Allow": "GET, HEAD"})
        name = request.scope["path"].removeprefix(AT).lstrip("/")
        if not self._files:
            self._files = _read(self._folder)  # a page that is built later is found without a restart
        if "index.html" not in self._files:
            return PlainTextResponse(UNBUILT + "\n", 503, HEADERS)
        found = self._files.get(name)
        if found is None and name.startswith(_HASHED):
            return PlainTextResponse("no such file\n", 404, HEADERS)
        file = found or self._files["index.html"]
        return Response(file.data, headers={**HEADERS, "Cache-Control": file.caching}, media_type=file.type)


def _read(folder: Path) -> dict[str, _File]:
    """Return all built files by path. Only these can be served, whatever path a request has."""
    return {
        path.relative_to(folder).as_posix(): _File(
            path.read_bytes(), _type(path), _FOREVER if path.parent != folder else "no-cache"
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _type(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"


async def redirect_to_sandbox(scope: Scope, receive: Receive, send: Send) -> None:
    """Redirect a link of Signadot's command line to the view of the sandbox."""
    name = quote(Request(scope).path_params["name"], safe="")
    await RedirectResponse(f"{AT}/sandboxes/{name}", 307, HEADERS)(scope, receive, send)


async def redirect_to_page(scope: Scope, receive: Receive, send: Send) -> None:
    """Redirect `/` to the page."""
    await RedirectResponse(f"{AT}/", 307, HEADERS)(scope, receive, send)


def accepts_html(request: Request) -> bool:
    """Whether a browser requests a document to display."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
