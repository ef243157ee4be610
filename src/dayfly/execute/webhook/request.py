"""The request: the webhook of the document with the values of its variables. Pure; runs in the sender."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

_DEFAULT_PORTS = {"https": 443, "http": 80}


class UnfitError(Exception):
    """A value is not allowed at its place in the request."""


class ServerOrigin(NamedTuple):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class WebhookRequest(NamedTuple):
    """A request. `shown` are the names of headers whose values may be logged."""

    origin: ServerOrigin
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    shown: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        return f"{self.origin.scheme}://{self.origin.authority}{self.target}"


class RequestValues(NamedTuple):
    """Values of variables: inputs (None if absent), built-in variables, and Secrets by name and key."""

    inputs: Mapping[str, bytes | None]
    environment: Mapping[str, str]
    secrets: Mapping[tuple[str, str], str]

    def find(self, value: Any) -> str | None:
        """Return a constant, or the value of a variable; None if it is absent.

        Raises:
            UnfitError: The value is not UTF-8.
        """
        if not isinstance(value, dict):
            return str(value)
        if "$env" in value:
            return self.environment.get(value["$env"])
        if "$secret" in value:
            return self.secrets[value["$secret"]["name"], value["$secret"]["key"]].rstrip("\r\n")
        found = self.inputs[value["$input"]]
        try:
            return None if found is None else found.decode()
        except UnicodeDecodeError:
            raise UnfitError(f"input {value['$input']} is not text in UTF-8") from None


def origin_of(url: str) -> ServerOrigin:
    """Return the server of a URL.

    Raises:
        UnfitError: The URL is invalid or ambiguous.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        raise UnfitError(f"{url!r} is not a URL: {fault}") from None
    is_ambiguous = "\\" in url or any(char <= " " or char > "~" for char in url)
    if is_ambiguous or parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        raise UnfitError(f"{url!r} is not a plain http or https URL")
    return ServerOrigin(parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port)


def build(written: Mapping[str, Any], values: RequestValues, key: str) -> WebhookRequest:
    """Build the request with the values of its variables.

    Raises:
        UnfitError: A value is not allowed at its place in the request.
    """
    headers, shown = _headers(written.get("headers") or {}, values)
    body = None
    if written.get("body") is not None:
        body = as_json(_fill(written["body"], values))
        if "content-type" not in {name.lower() for name, _ in headers}:
            headers.append(("Content-Type", "application/json"))
    name = written.get("idempotencyKey") or "Idempotency-Key"
    headers.append((name, key))
    return WebhookRequest(
        origin=origin_of(written["url"]),
        method=written["method"],
        target=_target(written["url"], written.get("path") or (), written.get("query") or {}, values),
        headers=tuple(headers),
        body=body,
        shown=frozenset({*shown, "content-type", name.lower()}),
    )


def find_request(written: Mapping[str, Any], values: RequestValues, sent: WebhookRequest) -> WebhookRequest:
    """Build the GET request of `find`, which shows whether the request was carried out.

    Raises:
        UnfitError: A value is not allowed at its place in the request.
    """
    find = written["find"]
    target = _target(written["url"], find.get("path") or (), find.get("query") or {}, values)
    return _get(sent, target, written)


def job_request(written: Mapping[str, Any], sent: WebhookRequest, location: str) -> WebhookRequest:
    """Build the GET request for the job at `location`.

    Raises:
        UnfitError: The location is on another server, which must not receive the headers.
    """
    url = urljoin(sent.url, location)
    if origin_of(url) != sent.origin:
        raise UnfitError(f"the job's address {url!r} is not on {sent.origin.authority}")
    parts = urlsplit(url)
    return _get(sent, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), written)


def _get(sent: WebhookRequest, target: str, written: Mapping[str, Any]) -> WebhookRequest:
    omitted = {"content-type", (written.get("idempotencyKey") or "Idempotency-Key").lower()}
    headers = tuple((name, value) for name, value in sent.headers if name.lower() not in omitted)
    return sent._replace(method="GET", target=target, headers=headers, body=None)


def _headers(written: Mapping[str, Any], values: RequestValues) -> tuple[list[tuple[str, str]], set[str]]:
    found: list[tuple[str, str]] = []
    shown = set()
    for name, value in written.items():
        text = values.find(value)
        if text is None:
            continue
        if isinstance(value, dict):
            text = value.get("prefix", "") + text
        else:
            shown.add(name.lower())
        if not text.isascii() or not text.isprintable():
            raise UnfitError(f"the value of header {name} is not one line of ASCII characters")
        found.append((name, text))
    return found, shown


def _fill(value: Any, values: RequestValues) -> Any:
    if isinstance(value, list):
        return [_fill(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    if "$input" not in value and "$env" not in value:
        return {key: _fill(item, values) for key, item in value.items()}
    text = values.find(value)
    if text is None or not value.get("json"):
        return text
    try:
        found = json.loads(text)
        as_json(found)
    except (ValueError, RecursionError):
        raise UnfitError(f"{value.get('$input') or value.get('$env')} is not JSON") from None
    return found


def as_json(value: Any) -> bytes:
    """Encode a value for the body.

    Raises:
        ValueError: JSON cannot represent it: NaN, infinity, or a lone surrogate.
        RecursionError: The value is nested too deep.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def normalize_json(text: bytes) -> bytes:
    """Return a text as it is encoded in a body with `json: true`; unchanged if it is not JSON."""
    try:
        return as_json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _target(url: str, path: Any, query: Mapping[str, Any], values: RequestValues) -> str:
    target = urlsplit(url).path or "/"
    for segment in path:
        text = values.find(segment)
        if text is None or text in ("", ".", ".."):
            raise UnfitError(f"a segment of the path is {'absent' if text is None else repr(text)}")
        target = f"{target.rstrip('/')}/{quote(text, safe='')}"
    members = [(name, text) for name, value in query.items() if (text := values.find(value)) is not None]
    joined = "&".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in members)
    return f"{target}?{joined}" if joined else target
