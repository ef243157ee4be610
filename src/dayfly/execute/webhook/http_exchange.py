"""One request and its answer, over a connection to an address that was looked at. Runs in the sender.

A name is resolved once, every address it has is judged, and the connection goes to one that was judged: nobody is asked
a second time, so nobody can answer differently. What cannot have been sent, and what may have been, are two errors.
"""

import errno
import http.client
import io
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dayfly.execute.webhook import address_policy
from dayfly.execute.webhook.exit_codes import ExitCode
from dayfly.execute.webhook.request import ServerOrigin, WebhookRequest

ANSWER_LIMIT = 1 << 20
_UNREACHABLE = frozenset(
    {
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
        errno.EPERM,
    }
)
# OpenSSL's X509_V_ERR_*: not yet valid, expired, host name mismatch, IP address mismatch.
_CERTIFICATE = {
    9: ExitCode.CERTIFICATE_EXPIRED,
    10: ExitCode.CERTIFICATE_EXPIRED,
    62: ExitCode.CERTIFICATE_MISMATCH,
    64: ExitCode.CERTIFICATE_MISMATCH,
}

Resolved = list[tuple[int, tuple[Any, ...]]]
"""Families and socket addresses."""
Resolve = Callable[[str, int], Resolved]


class UnsentError(Exception):
    """Nothing of the request has left."""

    def __init__(self, sentence: str, *, end: ExitCode = ExitCode.NOT_SENT, again: bool = True) -> None:
        super().__init__(sentence)
        self.end = end
        self.again = again


class ResponseLostError(Exception):
    """Some of the request has left, and no answer has come."""


class WebhookResponse(NamedTuple):
    """A status and what belongs to it. `fault` says that its body is not whole."""

    status: int
    phrase: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    fault: ExitCode | None = None

    def header(self, name: str) -> str | None:
        """The value of that header; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class ServerAccess(NamedTuple):
    """How to reach the server. `allowed` says that an administrator lets it be anywhere.

    Connecting and the answer have a time each, and `left_s` both together.
    """

    origin: ServerOrigin
    allowed: bool
    ca: str
    connect_s: float
    answer_s: float
    left_s: float


def resolve(host: str, port: int) -> Resolved:
    """Where a name leads.

    Raises:
        OSError: it cannot be told.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def send(way: ServerAccess, request: WebhookRequest, resolver: Resolve = resolve) -> WebhookResponse:
    """Send it, and read what is answered.

    Raises:
        UnsentError: nothing has left.
        LostError: something has.
    """
    until = time.monotonic() + way.left_s
    stream = _connected(way, resolver)
    try:
        return _exchanged(stream, request, min(time.monotonic() + way.answer_s, until))
    finally:
        stream.close()


def _connected(way: ServerAccess, resolver: Resolve) -> socket.socket:
    until = time.monotonic() + way.connect_s
    origin = way.origin
    found = _resolved(origin, way.connect_s, resolver)
    refused = [(address[0], problem) for _, address in found if (problem := address_policy.refusal(str(address[0])))]
    if refused and not way.allowed:
        address, problem = refused[0]
        raise UnsentError(
            f"{origin.host} leads to {address}, which {problem}; the administrator can allow it: "
            f"--allow-webhook {_bracketed(origin.host)}:{origin.port}",
            end=ExitCode.ADDRESS_REFUSED,
            again=False,
        )
    if origin.scheme == "http" and not way.allowed:
        raise UnsentError(
            f"http:// is sent in the clear; use https://, or have the administrator allow it: "
            f"--allow-webhook {_bracketed(origin.host)}:{origin.port}",
            end=ExitCode.ADDRESS_REFUSED,
            again=False,
        )
    stream = _first(found, origin, until)
    if origin.scheme == "http":
        return stream
    stream.settimeout(max(until - time.monotonic(), 0.001))
    try:
        return _secured(stream, way)
    except UnsentError:
        stream.close()
        raise


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _resolved(origin: ServerOrigin, seconds: float, resolver: Resolve) -> Resolved:
    """In a thread: the system's resolver knows no time limit of ours."""
    told: list[Resolved | OSError] = []

    def ask() -> None:
        try:
            told.append(resolver(origin.host, origin.port))
        except (OSError, UnicodeError) as fault:
            told.append(fault if isinstance(fault, OSError) else OSError(str(fault)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not told:
        raise UnsentError(f"the name {origin.host} was not resolved within {seconds:g} s", end=ExitCode.NAME_NOT_FOUND)
    if isinstance(told[0], OSError):
        why = told[0].strerror or told[0]
        raise UnsentError(f"the name {origin.host} cannot be resolved: {why}", end=ExitCode.NAME_NOT_FOUND)
    if not told[0]:
        raise UnsentError(f"the name {origin.host} has no address", end=ExitCode.NAME_NOT_FOUND)
    return told[0]


def _first(found: Resolved, origin: ServerOrigin, until: float) -> socket.socket:
    """A connection to the first address that takes one."""
    why, end = "no time was left", ExitCode.CONNECTION_TIMED_OUT
    for number, (family, address) in enumerate(found, 1):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            stream = socket.socket(family, socket.SOCK_STREAM)
        except OSError as fault:  # this machine has no IPv6, say
            why, end = (fault.strerror or str(fault)).lower(), ExitCode.UNREACHABLE
            continue
        # One that answers nobody is to leave time for those behind it.
        stream.settimeout(left if number == len(found) else left / 2)
        try:
            stream.connect(address)
        except OSError as fault:
            stream.close()
            why, end = (fault.strerror or str(fault)).lower(), _end_of(fault)
        else:
            return stream
    raise UnsentError(f"{origin.authority} cannot be connected to: {why}", end=end)


def _end_of(fault: OSError) -> ExitCode:
    """How an attempt to connect ended."""
    match fault:
        case ConnectionRefusedError():
            return ExitCode.CONNECTION_REFUSED
        case TimeoutError():
            return ExitCode.CONNECTION_TIMED_OUT
    return ExitCode.UNREACHABLE if fault.errno in _UNREACHABLE else ExitCode.NOT_SENT


def _secured(stream: socket.socket, way: ServerAccess) -> socket.socket:
    import ssl  # noqa: PLC0415 - a tenth of the sender's start, which http:// does without

    try:
        # Certificates are ASCII; what stands beside them in the same text, a name perhaps, need not be.
        context = ssl.create_default_context(cadata=way.ca.encode("ascii", "replace").decode() or None)
    except ssl.SSLError as fault:
        raise UnsentError(f"tls.ca cannot be read: {fault}", end=ExitCode.CA_UNREADABLE, again=False) from None
    try:
        return context.wrap_socket(stream, server_hostname=way.origin.host.rstrip("."))
    except ssl.SSLCertVerificationError as fault:
        raise UnsentError(
            f"the certificate of {way.origin.authority} is not believed: {fault.verify_message}",
            end=_CERTIFICATE.get(fault.verify_code, ExitCode.CERTIFICATE_UNTRUSTED),
            again=False,
        ) from None
    except (OSError, ValueError) as fault:
        raise UnsentError(f"no TLS with {way.origin.authority}: {fault}", end=ExitCode.TLS_FAILED) from None


class _Timed(io.RawIOBase):
    """A connection of which each piece has to come before one moment; `http.client` reads from it."""

    def __init__(self, stream: socket.socket, until: float) -> None:
        self._stream = stream
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._stream.settimeout(max(self._until - time.monotonic(), 0.001))
        return self._stream.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _exchanged(stream: socket.socket, request: WebhookRequest, until: float) -> WebhookResponse:
    response = http.client.HTTPResponse(_Timed(stream, until), method=request.method)  # type: ignore[arg-type]  # it asks of a socket for makefile alone
    try:
        stream.settimeout(max(until - time.monotonic(), 0.001))
        stream.sendall(_head(request) + (request.body or b""))
        response.begin()
    except TimeoutError:
        raise ResponseLostError("no answer came in time (`timeouts.answer` of the webhook)") from None
    except (OSError, http.client.HTTPException) as fault:
        raise ResponseLostError(f"no answer came: {str(fault) or type(fault).__name__}") from None
    if response.status < 200:
        raise ResponseLostError(f"the answer {response.status} says only that another one will come")
    answer = WebhookResponse(response.status, response.reason, tuple(response.getheaders()))
    try:
        body = response.read(ANSWER_LIMIT + 1)
    except TimeoutError:
        return answer._replace(fault=ExitCode.SLOW)
    except (OSError, http.client.HTTPException, ValueError):  # the last of a chunk that is said to be smaller than none
        return answer._replace(fault=ExitCode.CUT)
    if len(body) > ANSWER_LIMIT:
        return answer._replace(fault=ExitCode.TOO_LARGE)
    # `read` with a limit says nothing of an end that came too early, but that something is left.
    return answer._replace(body=body, fault=ExitCode.CUT if response.length else None)


def _head(request: WebhookRequest) -> bytes:
    lines = [
        f"{request.method} {request.target} HTTP/1.1",
        f"Host: {request.origin.authority}",
        *(f"{name}: {value}" for name, value in request.headers),
    ]
    given = {name.lower() for name, _ in request.headers}
    for name, value in (("User-Agent", "dayfly"), ("Accept", "application/json"), ("Accept-Encoding", "identity")):
        if name.lower() not in given:
            lines.append(f"{name}: {value}")
    if request.body is not None or request.method not in ("GET", "HEAD", "DELETE"):
        lines.append(f"Content-Length: {len(request.body or b'')}")
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("ascii")
