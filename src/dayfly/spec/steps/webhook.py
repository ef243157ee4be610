"""Webhooks: one request, the meaning of its response, and how a long job is polled.

A value is always inserted as a whole: `{$input: name}`, `{$env: NAME}` or (in a header) `{$secret: ...}` takes its
place. No text is assembled from variable parts, and the host's name is always constant.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, doc
from dayfly.spec.scalars import jsonpath, kube_names
from dayfly.spec.scalars.duration import milliseconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SCHEMES = ("https", "http")
MAX_BYTES = 64 * 1024
MAX_URL_CHARACTERS = 2048
DEFAULT_KEY_HEADER = "Idempotency-Key"
BUILT_IN_OUTPUTS = ("location",)
"""Outputs of each webhook besides its own: the address of its long job."""
DEFINITE = "definite-answer"
"""An output for Dayfly only: the server has certainly refused. A request after that is a new one."""
EVERY_STEPS_VARIABLES = ("DAYFLY_RESOURCE_ID", "DAYFLY_OUTPUTS_COMPLETE")
BUILT_IN_VARIABLES = (
    "DAYFLY_SANDBOX_NAME",
    "DAYFLY_SANDBOX_ROUTING_KEY",
    "DAYFLY_RESOURCE_NAME",
    *EVERY_STEPS_VARIABLES,
)
"""Environment variables that a webhook of a sandbox or its plugins may use."""
CONNECT_MS = 10_000
ANSWER_MS = 60_000
RUN_MS = 300_000
"""Time limit of a webhook without `poll`, unless `timeouts.run` is set."""

_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<host>\[[0-9a-fA-F:]+\]|[^/?#\[\]:@]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)?"
)
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*\.?")
_FIRST_NUMBER = re.compile(r"(.*\.)?(0[xX][0-9a-fA-F]*|[0-9]+)\.?")
_QUAD = re.compile(r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}")
HEADER = "[A-Za-z0-9!#$%&'*+.^_`|~-]+"
"""Pattern of a header's name of at most 128 characters."""
_TOKEN = re.compile(rf"(?=.{{1,128}}\Z){HEADER}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"})
_BEGUN = (202,)


_VARIABLE = "Each is a string, {$input: name} or {$env: NAME}."


def _duration(about: str) -> msgspec.Meta:
    return doc(about, 16, pattern="^([0-9]{1,9}[smh])?$")


def _statuses(about: str) -> msgspec.Meta:
    return doc(about, maxItems=MAX_VALUES, items={"minimum": 200, "maximum": 599})


class Comparison(WireStruct, frozen=True, kw_only=True):
    """A comparison: the JSONPath must find one of these values in the response."""

    path: Annotated[str, doc("A JSONPath (RFC 9535).", 1024, pattern=r"^\$")]
    in_: Annotated[tuple[Any, ...], doc("The accepted values.", maxItems=MAX_VALUES, minItems=1)] = msgspec.field(
        name="in"
    )


class Expect(WireStruct, frozen=True, kw_only=True):
    """The meaning of status codes: `status` are successes (default: any 2xx), `failed` are certain failures.

    The codes 408, 425, 429 and 5xx leave the outcome unknown unless they are listed. All others are failures.
    """

    status: Annotated[tuple[int, ...], _statuses("Status codes of success; any 2xx by default.")] = ()
    failed: Annotated[
        tuple[int, ...],
        _statuses("Status codes of certain failure that would leave the outcome unknown otherwise."),
    ] = ()


class Poll(WireStruct, frozen=True, kw_only=True):
    """A long job. A response with one of these `status` codes has its address, which is polled until `until` holds."""

    status: Annotated[tuple[int, ...], _statuses("Status codes that start a job.")] = _BEGUN
    location: Annotated[
        str, doc("A JSONPath of the job's address in the response. By default the header Location.", 1024)
    ] = ""
    until: Annotated[Comparison, doc("Holds when the job is done.")]
    failed: Annotated[Comparison | None, doc("Holds when the job has failed.")] = None


class Find(WireStruct, frozen=True, kw_only=True):
    """A GET request that determines whether the request was executed, if its response was lost."""

    path: Annotated[tuple[Any, ...], doc(f"Further segments of the path. {_VARIABLE}", maxItems=MAX_VALUES)] = ()
    query: Annotated[dict[str, Any], doc(f"Parameters of the query. {_VARIABLE}")] = {}
    when: Annotated[
        Comparison | None, doc("Holds for the response if the request was executed. By default any 2xx is enough.")
    ] = None


class Tls(WireStruct, frozen=True, kw_only=True):
    """Trusted certificates in PEM form, instead of the system's."""

    ca: Annotated[str, doc("Trusted certificates in PEM form, instead of the system's.", 32_768)]


class WebhookTimeouts(WireStruct, frozen=True, kw_only=True):
    """Time limits of one exchange: for the connection, and for the response."""

    connect: Annotated[
        str, _duration("Maximum time to resolve the name, connect and do the handshake. Default: 10s.")
    ] = ""
    answer: Annotated[str, _duration("Maximum time from the request to the end of its response. Default: 60s.")] = ""


class Webhook(WireStruct, frozen=True, kw_only=True):
    """One request to a server. `path` has further segments of the URL's path, each escaped; `body` is sent as JSON."""

    method: Annotated[str, doc("Method of the request.", enum=list(METHODS))]
    url: Annotated[
        str,
        doc(
            "URL of the server: scheme, host, port and path.",
            MAX_URL_CHARACTERS,
            pattern=r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$",
        ),
    ]
    path: Annotated[tuple[Any, ...], doc(f"Further segments of the path. {_VARIABLE}", maxItems=MAX_VALUES)] = ()
    query: Annotated[dict[str, Any], doc(f"Parameters of the query. {_VARIABLE}")] = {}
    headers: Annotated[
        dict[str, Any], doc(f"Headers. {_VARIABLE} Or {{$secret: {{name, key}}}}, with a constant prefix.")
    ] = {}
    body: Annotated[Any, doc("Sent as JSON; {$input: name} may replace any value in it.")] = None
    expect: Annotated[Expect | None, doc("The meaning of the response's status code.")] = None
    poll: Annotated[Poll | None, doc("How a long job is polled.")] = None
    find: Annotated[
        Find | None, doc("How to determine whether the request was executed, if its response was lost.")
    ] = None
    tls: Annotated[Tls | None, doc("Trusted certificates of the server.")] = None
    idempotency_key: Annotated[
        str,
        doc(
            "Header with the idempotency key, which stays the same until there is a response.",
            128,
            default=DEFAULT_KEY_HEADER,
            pattern=f"^({HEADER})?$",
        ),
    ] = DEFAULT_KEY_HEADER
    timeouts: Annotated[
        WebhookTimeouts | None,
        doc("Time limits of each exchange; timeouts.run of the step is the limit of all of them."),
    ] = None


def check(
    webhook: Webhook,
    inputs: Collection[str],
    keys: Path,
    *,
    repeats: bool,
    variables: tuple[str, ...] = BUILT_IN_VARIABLES,
) -> None:
    """Check one webhook.

    Args:
        webhook: The webhook as written.
        inputs: The names of its step's inputs.
        keys: The path to it.
        repeats: Whether its step may run again after a failure, so that a request without a response is sent again.
        variables: The environment variables that it may use.

    Raises:
        SpecError: The faults.
    """
    faults = Faults()
    places = _Places(frozenset(inputs), variables, faults)
    with faults:
        if webhook.method not in METHODS:
            raise SpecError(f"{quote(webhook.method)} is none of {', '.join(METHODS)}", (*keys, "method"))
    with faults:
        check_url(webhook.url, (*keys, "url"))
    places.segments(webhook.path, (*keys, "path"))
    places.members(webhook.query, (*keys, "query"))
    places.headers(webhook.headers, webhook.idempotency_key, (*keys, "headers"))
    with faults:
        if webhook.body is not None and webhook.method in ("GET", "HEAD"):
            raise SpecError(f"a {webhook.method} has no body; write query, or another method", (*keys, "body"))
    places.body(webhook.body, (*keys, "body"))
    _check_settings(webhook, keys, faults)
    _check_expect(webhook.expect or Expect(), webhook.poll, (*keys, "expect"), faults)
    if webhook.poll is not None:
        _check_poll(webhook.poll, (*keys, "poll"), faults)
    if webhook.find is not None:
        with faults:
            if repeats:
                raise SpecError("an idempotent step is sent again instead; leave find out", (*keys, "find"))
        places.segments(webhook.find.path, (*keys, "find", "path"))
        places.members(webhook.find.query, (*keys, "find", "query"))
        if webhook.find.when is not None:
            check_comparison(webhook.find.when, (*keys, "find", "when"), faults)
    faults.settle()


def _check_settings(webhook: Webhook, keys: Path, faults: Faults) -> None:
    with faults:
        if not is_header(webhook.idempotency_key):
            raise SpecError("is not the name of a header", (*keys, "idempotencyKey"))
        if webhook.idempotency_key.lower() in (*_OURS, "content-type"):
            raise SpecError("is a header with another purpose; choose another name", (*keys, "idempotencyKey"))
    with faults:
        if webhook.tls is not None and "-----BEGIN CERTIFICATE-----" not in webhook.tls.ca:
            raise SpecError("contains no certificate in PEM format", (*keys, "tls", "ca"))
    limits = webhook.timeouts or WebhookTimeouts()
    for field in ("connect", "answer"):
        with faults:
            if duration := getattr(limits, field):
                milliseconds(duration, (*keys, "timeouts", field))
    with faults:
        if (size := len(msgspec.json.encode(webhook))) > MAX_BYTES:
            raise SpecError(f"has {size} bytes; a webhook has at most {MAX_BYTES}", keys)


def check_url(url: str, keys: Path = ()) -> None:
    """Refuse a URL that programs could interpret differently.

    Raises:
        SpecError: It is not a plain https:// or http:// URL with a host, a port and a path.
    """
    if len(url) > MAX_URL_CHARACTERS:
        raise SpecError(f"has {len(url)} characters; a URL has at most {MAX_URL_CHARACTERS}", keys)
    for sign, advice in (("?", "write query beside it"), ("#", "leave the fragment out"), ("@", "name no user")):
        if sign in url.partition("://")[2]:
            raise SpecError(f"{quote(url)} contains {quote(sign)}: {advice}", keys)
    match = _URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        raise SpecError(f"{quote(url)} is not a URL like https://api.example.com/v1/records", keys)
    if match["port"] is not None and not 0 < int(match["port"]) < 65_536:
        raise SpecError(f"{quote(url)} has the invalid port {match['port']}", keys)
    _check_host(match["host"], keys)
    path = match["path"] or "/"
    parts = path.split("/")
    if not _PATH.fullmatch(path) or "%" in re.sub(r"%[0-9a-fA-F]{2}", "", path):
        raise SpecError(f"{quote(path)} is not a plain path: write other characters as %XX", keys)
    if {"..", "."} & {re.sub(r"%2[eE]", ".", part) for part in parts}:
        raise SpecError(f'{quote(path)} contains "." or ".." as a part; write the path without it', keys)


def _check_host(host: str, keys: Path) -> None:
    if host.startswith("["):
        return  # the sender parses it, and refuses an invalid address
    if _FIRST_NUMBER.fullmatch(host) and not _QUAD.fullmatch(host):
        raise SpecError(f"{quote(host)} is not a plain address: write four decimal numbers, or a name", keys)
    if not _HOST.fullmatch(host):
        raise SpecError(f"{quote(host)} is not a host name: write ASCII letters, digits, - and .", keys)


def is_header(name: str) -> bool:
    """Return whether it is a valid header name."""
    return _TOKEN.fullmatch(name) is not None


def secret_variable(name: str, key: str) -> str:
    """Return the variable in which the sender finds a key of a Secret: `DNS_TOKEN` for `dns.token`."""
    return re.sub(r"[^A-Z0-9]", "_", f"{name}_{key}".upper())


def secrets(headers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return name and key of each Secret in the headers."""
    for value in headers.values():
        if isinstance(value, dict) and "$secret" in value:
            yield value["$secret"]["name"], value["$secret"]["key"]


class _Places:
    """Checks of the places with variable values."""

    def __init__(self, inputs: frozenset[str], variables: tuple[str, ...], faults: Faults) -> None:
        self.inputs = inputs
        self.variables = variables
        self.faults = faults

    def segments(self, path: tuple[Any, ...], keys: Path) -> None:
        for index, value in enumerate(path):
            with self.faults:
                self.value(value, (*keys, index), text=True)
                if value in ("", ".", ".."):
                    raise SpecError(f"{quote(str(value))} is not a path segment", (*keys, index))

    def members(self, query: dict[str, Any], keys: Path) -> None:
        for name, value in query.items():
            with self.faults:
                self.value(value, (*keys, name), text=True)

    def headers(self, headers: dict[str, Any], key_header: str, keys: Path) -> None:
        seen = {key_header.lower(): "Dayfly sends this header; idempotencyKey sets its name"}
        variables: dict[str, tuple[str, str]] = {}
        for name, value in headers.items():
            here = (*keys, name)
            with self.faults:
                if not _TOKEN.fullmatch(name):
                    raise SpecError(f"{quote(name)} is not the name of a header", here)
                if name.lower() in _OURS:
                    raise SpecError("is set by the sender itself; leave it out", here)
                if problem := seen.get(name.lower()):
                    raise SpecError(problem, here)
                seen[name.lower()] = "appears twice, with different case"
                if isinstance(value, dict) and "$secret" in value:
                    _check_secret(value, here)
                    named = value["$secret"]["name"], value["$secret"]["key"]
                    if (first := variables.setdefault(variable := secret_variable(*named), named)) != named:
                        other = f"the key {first[1]} of {first[0]}"
                        problem = f"uses the variable {variable}, as {other} does; rename one"
                        raise SpecError(problem, (*here, "$secret"))
                    continue
                self.value(value, here, text=True, more=("prefix",))
                if isinstance(value, str) and not (value.isascii() and value.isprintable()):
                    raise SpecError("a header has only ASCII characters on one line", here)

    def body(self, value: Any, keys: Path) -> None:
        if isinstance(value, dict) and not any(key.startswith("$") for key in value):
            for key, item in value.items():
                self.body(item, (*keys, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.body(item, (*keys, index))
        elif isinstance(value, dict):
            with self.faults:
                self.value(value, keys, text=False, more=("json",))

    def value(self, value: Any, keys: Path, *, text: bool, more: tuple[str, ...] = ()) -> None:
        """Check a constant, or a reference to an input or a variable."""
        if not isinstance(value, dict):
            if text and not isinstance(value, str):
                raise SpecError("must be a string (in quotes), {$input: name} or {$env: NAME}", keys)
            return
        what = value.keys() - set(more)
        if what not in ({"$input"}, {"$env"}) or ("json" in value and not isinstance(value["json"], bool)):
            form = "".join(f", and {word} beside it" for word in more)
            raise SpecError(f"write {{$input: name}} or {{$env: NAME}}{form}", keys)
        if not isinstance(value.get("prefix", ""), str) or not value.get("prefix", "").isascii():
            raise SpecError("a prefix must be a constant of ASCII characters", (*keys, "prefix"))
        name = value.get("$input", value.get("$env"))
        if "$input" in value and not (isinstance(name, str) and name in self.inputs):
            known = ", ".join(map(quote, sorted(self.inputs))) or "none"
            raise SpecError(f"this step has no input {quote(str(name))}; it has {known}", (*keys, "$input"))
        if "$env" in value and name not in self.variables:
            raise SpecError(f"{quote(str(name))} is not one of {', '.join(self.variables)}", (*keys, "$env"))


def _check_secret(value: dict[str, Any], keys: Path) -> None:
    named = value["$secret"]
    if value.keys() - {"$secret", "prefix"} or not isinstance(named, dict) or named.keys() != {"name", "key"}:
        raise SpecError("write {$secret: {name: ..., key: ...}}, and prefix beside it", keys)
    if not isinstance(named["name"], str):
        raise SpecError("names no Secret", (*keys, "$secret", "name"))
    kube_names.check_object("a Secret", named["name"], (*keys, "$secret", "name"))
    if not isinstance(named["key"], str) or not kube_names.is_key(named["key"]):
        raise SpecError("has an invalid key of a Secret", (*keys, "$secret", "key"))
    prefix = value.get("prefix", "")
    if not (isinstance(prefix, str) and prefix.isascii() and prefix.isprintable()):
        raise SpecError("a prefix must be a constant of ASCII characters", (*keys, "prefix"))


def _check_expect(expect: Expect, poll: Poll | None, keys: Path, faults: Faults) -> None:
    begun = (poll.status or _BEGUN) if poll is not None else ()
    successes = {*(expect.status or range(200, 300)), *begun}
    for field in ("status", "failed"):
        for index, status in enumerate(getattr(expect, field)):
            with faults:
                if not 200 <= status <= 599:
                    raise SpecError(f"{status} is not a status code of a response: 200 to 599", (*keys, field, index))
                if field == "failed" and status in successes:
                    any_ = status not in (*expect.status, *begun)
                    advice = "write in status which are" if any_ else "leave one of the two out"
                    raise SpecError(f"{status} is a success too; {advice}", (*keys, field, index))


def _check_poll(poll: Poll, keys: Path, faults: Faults) -> None:
    for index, status in enumerate(poll.status):
        with faults:
            if not 200 <= status <= 299:
                raise SpecError(f"{status} does not state that a job was started: 200 to 299", (*keys, "status", index))
    with faults:
        if poll.location:
            jsonpath.check(poll.location, (*keys, "location"))
    check_comparison(poll.until, (*keys, "until"), faults)
    if poll.failed is not None:
        check_comparison(poll.failed, (*keys, "failed"), faults)


def check_comparison(comparison: Comparison, keys: Path, faults: Faults, *, regex: bool = True) -> None:
    """Check one comparison and add its faults to `faults`. `regex` is as for `jsonpath.check`."""
    with faults:
        jsonpath.check(comparison.path, (*keys, "path"), regex=regex)
    with faults:
        if not comparison.in_:
            raise SpecError("has no value; write the values to compare with", (*keys, "in"))
    for index, value in enumerate(comparison.in_):
        with faults:
            if isinstance(value, dict | list):
                raise SpecError(f"{json.dumps(value)} is not a plain value", (*keys, "in", index))
