"""One request and its response, over a connection to a checked address. Runs in the sender.

A name is resolved once, and every address is checked before the connection. So a DNS server cannot return a different
address for the connection than for the check. Two errors distinguish requests that were certainly not sent from
requests that may have been sent.
"""

import email.utils
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
    """No part of the request was sent."""

    def __init__(self, sentence: str, *, end: ExitCode = ExitCode.NOT_SENT, can_retry: bool = True) -> None:
        super().__init__(sentence)
        self.end = end
        self.can_retry = can_retry


class ResponseLostError(Exception):
    """A part of the request was sent, but no response was received."""


class WebhookResponse(NamedTuple):
    """An HTTP response. `fault` is set if the body is incomplete."""

    status: int
    phrase: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    fault: ExitCode | None = None

    def header(self, name: str) -> str | None:
        """Return the value of the header; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def retry_after_s(self, now: float) -> float | None:
        """Return the seconds in `Retry-After`; None if the server sent none or an invalid one.

        For a date, they count from the response's own `Date`, or from `now` (unix seconds) without one.
        """
        text = (self.header("Retry-After") or "").strip()
        if text.isascii() and text.isdigit():
            return float(text)
        if (due := _timestamp(text)) is None:
            return None
        sent = _timestamp(self.header("Date") or "")
        return max(due - (now if sent is None else sent), 0.0)


def _timestamp(date: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


class ServerAccess(NamedTuple):
    """The terms for a connection to the server. With `allowed`, an administrator permits any address and plain HTTP.

    `connect_s` limits the connection, `answer_s` the response, and `left_s` both together.
    """

    origin: ServerOrigin
    allowed: bool
    ca: str
    connect_s: float
    answer_s: float
    left_s: float


def resolve(host: str, port: int) -> Resolved:
    """Resolve a host name.

    Raises:
        OSError: The name cannot be resolved.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def send(access: ServerAccess, request: WebhookRequest, resolver: Resolve = resolve) -> WebhookResponse:
    """Send the request and read the response.

    Raises:
        UnsentError: No part of the request was sent.
        ResponseLostError: A part was sent, but no response was received.
    """
    until = time.monotonic() + access.left_s
    stream = _connect(access, resolver)
    try:
        return _exchange(stream, request, min(time.monotonic() + access.answer_s, until))
    finally:
        stream.close()


def _connect(access: ServerAccess, resolver: Resolve) -> socket.socket:
    until = time.monotonic() + access.connect_s
    origin = access.origin
    found = _resolve_in_time(origin, access.connect_s, resolver)
    refused = [
        (address[0], problem) for _, address in found if (problem := address_policy.why_refused(str(address[0])))
    ]
    if refused and not access.allowed:
        address, problem = refused[0]
        raise UnsentError(
            f"{origin.host} resolves to {address}, which {problem}; the administrator can allow it: "
            f"--allow-webhook {_bracketed(origin.host)}:{origin.port}",
            end=ExitCode.ADDRESS_REFUSED,
            can_retry=False,
        )
    if origin.scheme == "http" and not access.allowed:
        raise UnsentError(
            f"http:// is not encrypted; use https://, or have the administrator allow it: "
            f"--allow-webhook {_bracketed(origin.host)}:{origin.port}",
            end=ExitCode.ADDRESS_REFUSED,
            can_retry=False,
        )
    stream = _connect_first(found, origin, until)
    if origin.scheme == "http":
        return stream
    stream.settimeout(max(until - time.monotonic(), 0.001))
    try:
        return _start_tls(stream, access)
    except UnsentError:
        stream.close()
        raise


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _resolve_in_time(origin: ServerOrigin, seconds: float, resolver: Resolve) -> Resolved:
    """Resolve the host in a thread, because the system's resolver has no timeout parameter."""
    results: list[Resolved | OSError] = []

    def query() -> None:
        try:
            results.append(resolver(origin.host, origin.port))
        except (OSError, UnicodeError) as fault:
            results.append(fault if isinstance(fault, OSError) else OSError(str(fault)))

    thread = threading.Thread(target=query, daemon=True)
    thread.start()
    thread.join(seconds)
    if not results:
        raise UnsentError(f"the name {origin.host} was not resolved within {seconds:g} s", end=ExitCode.NAME_NOT_FOUND)
    if isinstance(results[0], OSError):
        why = results[0].strerror or results[0]
        raise UnsentError(f"the name {origin.host} cannot be resolved: {why}", end=ExitCode.NAME_NOT_FOUND)
    if not results[0]:
        raise UnsentError(f"the name {origin.host} has no address", end=ExitCode.NAME_NOT_FOUND)
    return results[0]


def _connect_first(found: Resolved, origin: ServerOrigin, until: float) -> socket.socket:
    """Connect to the first address that accepts the connection."""
    why, end = "no time was left", ExitCode.CONNECTION_TIMED_OUT
    for number, (family, address) in enumerate(found, 1):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            stream = socket.socket(family, socket.SOCK_STREAM)
        except OSError as fault:  # for example no IPv6 on this machine
            why, end = (fault.strerror or str(fault)).lower(), ExitCode.UNREACHABLE
            continue
        # An address that does not respond must leave time for the next ones.
        stream.settimeout(left if number == len(found) else left / 2)
        try:
            stream.connect(address)
        except OSError as fault:
            stream.close()
            why, end = (fault.strerror or str(fault)).lower(), _end_of(fault)
        else:
            return stream
    raise UnsentError(f"cannot connect to {origin.authority}: {why}", end=end)


def _end_of(fault: OSError) -> ExitCode:
    """Return the exit code for a failed connection."""
    match fault:
        case ConnectionRefusedError():
            return ExitCode.CONNECTION_REFUSED
        case TimeoutError():
            return ExitCode.CONNECTION_TIMED_OUT
    return ExitCode.UNREACHABLE if fault.errno in _UNREACHABLE else ExitCode.NOT_SENT


def _start_tls(stream: socket.socket, access: ServerAccess) -> socket.socket:
    import ssl  # noqa: PLC0415 - takes a tenth of the sender's start and is not needed for http://

    try:
        # Certificates are ASCII, but comments between them may not be.
        context = ssl.create_default_context(cadata=access.ca.encode("ascii", "replace").decode() or None)
    except ssl.SSLError as fault:
        raise UnsentError(f"cannot read tls.ca: {fault}", end=ExitCode.CA_UNREADABLE, can_retry=False) from None
    try:
        return context.wrap_socket(stream, server_hostname=access.origin.host.rstrip("."))
    except ssl.SSLCertVerificationError as fault:
        raise UnsentError(
            f"the certificate of {access.origin.authority} is not trusted: {fault.verify_message}",
            end=_CERTIFICATE.get(fault.verify_code, ExitCode.CERTIFICATE_UNTRUSTED),
            can_retry=False,
        ) from None
    except (OSError, ValueError) as fault:
        message = f"the TLS handshake with {access.origin.authority} failed: {fault}"
        raise UnsentError(message, end=ExitCode.TLS_FAILED) from None


class _DeadlineStream(io.RawIOBase):
    """A connection with a deadline for all reads together. `http.client` reads from it."""

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


def _exchange(stream: socket.socket, request: WebhookRequest, until: float) -> WebhookResponse:
    response = http.client.HTTPResponse(_DeadlineStream(stream, until), method=request.method)  # type: ignore[arg-type]  # needs only makefile
    try:
        stream.settimeout(max(until - time.monotonic(), 0.001))
        stream.sendall(_head(request) + (request.body or b""))
        response.begin()
    except TimeoutError:
        raise ResponseLostError("no response in time (`timeouts.answer` of the webhook)") from None
    except (OSError, http.client.HTTPException) as fault:
        raise ResponseLostError(f"no response: {str(fault) or type(fault).__name__}") from None
    if response.status < 200:
        raise ResponseLostError(f"the response {response.status} is informational and no final one was received")
    answer = WebhookResponse(response.status, response.reason, tuple(response.getheaders()))
    try:
        body = response.read(ANSWER_LIMIT + 1)
    except TimeoutError:
        return answer._replace(fault=ExitCode.SLOW)
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: a negative chunk size
        return answer._replace(fault=ExitCode.CUT)
    if len(body) > ANSWER_LIMIT:
        return answer._replace(fault=ExitCode.TOO_LARGE)
    # `read` with a limit does not raise for a truncated body; the remaining length shows it.
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
