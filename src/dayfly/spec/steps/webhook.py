"""What a step that calls a server is written like: one request, what its answer means, and how a long job is followed.

Values come in whole: where a value may be variable, `{$input: name}`, `{$env: NAME}` or (in a header) `{$secret: ...}`
stands in its place. Nothing is spliced into text, and nothing variable is ever a part of the host's name.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MOST_VALUES, doc
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
"""What each webhook tells besides its own outputs: where its long job is to be asked for."""
DEFINITE = "definite-answer"
"""And to nobody but Dayfly: that the server has said no for certain. What is sent after it is another request."""
EVERY_STEPS_VARIABLES = ("DAYFLY_RESOURCE_ID", "DAYFLY_OUTPUTS_COMPLETE")
BUILT_IN_VARIABLES = (
    "DAYFLY_SANDBOX_NAME",
    "DAYFLY_SANDBOX_ROUTING_KEY",
    "DAYFLY_RESOURCE_NAME",
    *EVERY_STEPS_VARIABLES,
)
"""What a webhook of a sandbox or of its plugins may take from its environment."""
CONNECT_MS = 10_000
ANSWER_MS = 60_000
RUN_MS = 300_000
"""How long a webhook without `poll` may take in all, unless `timeouts.run` says otherwise."""

_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<host>\[[0-9a-fA-F:]+\]|[^/?#\[\]:@]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)?"
)
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*\.?")
_FIRST_NUMBER = re.compile(r"(.*\.)?(0[xX][0-9a-fA-F]*|[0-9]+)\.?")
_QUAD = re.compile(r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}")
HEADER = "[A-Za-z0-9!#$%&'*+.^_`|~-]+"
"""Pattern of the name of a header, at most 128 long."""
_TOKEN = re.compile(rf"(?=.{{1,128}}\Z){HEADER}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"})
_BEGUN = (202,)


_VARIABLE = "A string, {$input: name} or {$env: NAME}."


def _duration(about: str) -> msgspec.Meta:
    return doc(about, 16, pattern="^([0-9]{1,9}[smh])?$")


def _statuses(about: str) -> msgspec.Meta:
    return doc(about, maxItems=MOST_VALUES, items={"minimum": 200, "maximum": 599})


class Comparison(WireStruct, frozen=True, kw_only=True):
    """Whether what a JSONPath finds in an answer is one of these values."""

    path: Annotated[str, doc("A JSONPath (RFC 9535).", 1024, pattern=r"^\$")]
    in_: Annotated[tuple[Any, ...], doc("The values of which it finds one.", maxItems=MOST_VALUES, minItems=1)] = (
        msgspec.field(name="in")
    )


class Expect(WireStruct, frozen=True, kw_only=True):
    """What a status means: `status` are successes (any 2xx if it is left out), `failed` certain failures.

    Of what is in neither, 408, 425, 429 and 5xx leave open what has become of the request; the rest has failed.
    """

    status: Annotated[tuple[int, ...], _statuses("Statuses that are successes; any 2xx if left out.")] = ()
    failed: Annotated[
        tuple[int, ...], _statuses("Statuses that are certain failures, of those that leave it open otherwise.")
    ] = ()


class Poll(WireStruct, frozen=True, kw_only=True):
    """A long job: an answer of one of `status` tells where to ask for it, and `until` when it is done."""

    status: Annotated[tuple[int, ...], _statuses("Statuses by which a job was begun.")] = _BEGUN
    location: Annotated[str, doc("A JSONPath that finds where to ask for it; empty: the header Location.", 1024)] = ""
    until: Annotated[Comparison, doc("What holds once the job is done.")]
    failed: Annotated[Comparison | None, doc("What holds once it has failed.")] = None


class Find(WireStruct, frozen=True, kw_only=True):
    """How to see, when no answer came, whether the request was carried out: a GET at the same server."""

    path: Annotated[tuple[Any, ...], doc(f"Further segments of the path. {_VARIABLE}", maxItems=MOST_VALUES)] = ()
    query: Annotated[dict[str, Any], doc(f"Members of the query. {_VARIABLE}")] = {}
    when: Annotated[
        Comparison | None, doc("What holds of the answer if the request was carried out; left out, a 2xx is enough.")
    ] = None


class Tls(WireStruct, frozen=True, kw_only=True):
    """Whom to believe: certificates in PEM form, instead of the system's."""

    ca: Annotated[str, doc("Certificates in PEM form that are believed instead of the system's.", 32_768)]


class WebhookTimeouts(WireStruct, frozen=True, kw_only=True):
    """Durations: to connect (name, connection, handshake) and from the request to the end of its answer."""

    connect: Annotated[str, _duration("Longest time for name, connection and handshake, like 10s.")] = ""
    answer: Annotated[str, _duration("Longest time from the request to the end of its answer, like 60s.")] = ""


class Webhook(WireStruct, frozen=True, kw_only=True):
    """One request to a server. `path` are further segments of the URL's, each escaped; `body` is sent as JSON."""

    method: Annotated[str, doc("Method of the request.", enum=list(METHODS))]
    url: Annotated[
        str,
        doc(
            "URL of the server: scheme, host, port and path.",
            MAX_URL_CHARACTERS,
            pattern=r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$",
        ),
    ]
    path: Annotated[tuple[Any, ...], doc(f"Further segments of the path. {_VARIABLE}", maxItems=MOST_VALUES)] = ()
    query: Annotated[dict[str, Any], doc(f"Members of the query. {_VARIABLE}")] = {}
    headers: Annotated[
        dict[str, Any], doc(f"Headers. {_VARIABLE} Or {{$secret: {{name, key}}}}, each with a constant prefix.")
    ] = {}
    body: Annotated[Any, doc("Sent as JSON; {$input: name} stands for an input anywhere in it.")] = None
    expect: Annotated[Expect | None, doc("What the status of the answer means.")] = None
    poll: Annotated[Poll | None, doc("How a long job is followed.")] = None
    find: Annotated[Find | None, doc("How to see, when no answer came, whether the request was carried out.")] = None
    tls: Annotated[Tls | None, doc("Whom to believe.")] = None
    idempotency_key: Annotated[
        str,
        doc(
            "Header of the key that stays the same until an answer has come.",
            128,
            default=DEFAULT_KEY_HEADER,
            pattern=f"^({HEADER})?$",
        ),
    ] = DEFAULT_KEY_HEADER
    timeouts: Annotated[
        WebhookTimeouts | None,
        doc("Limits of each exchange; timeouts.run of the step is that of all of them."),
    ] = None


def check(
    webhook: Webhook,
    inputs: Collection[str],
    keys: Path,
    *,
    repeats: bool,
    variables: tuple[str, ...] = BUILT_IN_VARIABLES,
) -> None:
    """The rules of one webhook.

    Args:
        webhook: As written.
        inputs: The names of its step's inputs.
        keys: The way to it.
        repeats: Whether its step may run again after a failure, so that an answer that is lost is asked for again.
        variables: What it may take from its environment.

    Raises:
        SpecError: whatever is wrong.
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
            raise SpecError("is a header of another meaning; name another", (*keys, "idempotencyKey"))
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
    """Refuse a URL of which two programs could think differently where it leads.

    Raises:
        SpecError: no plain https:// or http:// URL of a host, a port and a path.
    """
    if len(url) > MAX_URL_CHARACTERS:
        raise SpecError(f"has {len(url)} characters; a URL has at most {MAX_URL_CHARACTERS}", keys)
    for sign, advice in (("?", "write query beside it"), ("#", "leave the fragment out"), ("@", "name no user")):
        if sign in url.partition("://")[2]:
            raise SpecError(f"{quote(url)} holds {quote(sign)}: {advice}", keys)
    match = _URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        raise SpecError(f"{quote(url)} is not a URL like https://api.example.com/v1/records", keys)
    if match["port"] is not None and not 0 < int(match["port"]) < 65_536:
        raise SpecError(f"{quote(url)} names the port {match['port']}, and there is none", keys)
    _check_host(match["host"], keys)
    path = match["path"] or "/"
    parts = path.split("/")
    if not _PATH.fullmatch(path) or "%" in re.sub(r"%[0-9a-fA-F]{2}", "", path):
        raise SpecError(f"{quote(path)} is not a plain path: write other characters as %XX", keys)
    if {"..", "."} & {re.sub(r"%2[eE]", ".", part) for part in parts}:
        raise SpecError(f'{quote(path)} contains "." or ".." as a part; write the path without it', keys)


def _check_host(host: str, keys: Path) -> None:
    if host.startswith("["):
        return  # the sender reads it, and refuses what is no address
    if _FIRST_NUMBER.fullmatch(host) and not _QUAD.fullmatch(host):
        raise SpecError(f"{quote(host)} is not a plain address: write four decimal numbers, or a name", keys)
    if not _HOST.fullmatch(host):
        raise SpecError(f"{quote(host)} is not a host's name: write ASCII letters, digits, - and .", keys)


def is_header(name: str) -> bool:
    """Whether it can be the name of a header."""
    return _TOKEN.fullmatch(name) is not None


def secret_variable(name: str, key: str) -> str:
    """The variable in which the sender finds a key of a Secret: `dns.token` is `DNS_TOKEN`."""
    return re.sub(r"[^A-Z0-9]", "_", f"{name}_{key}".upper())


def secrets(headers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and key of each Secret that headers take values from."""
    for value in headers.values():
        if isinstance(value, dict) and "$secret" in value:
            yield value["$secret"]["name"], value["$secret"]["key"]


class _Places:
    """Checks of the places where a value may be variable."""

    def __init__(self, inputs: frozenset[str], variables: tuple[str, ...], faults: Faults) -> None:
        self.inputs = inputs
        self.variables = variables
        self.faults = faults

    def segments(self, path: tuple[Any, ...], keys: Path) -> None:
        for index, value in enumerate(path):
            with self.faults:
                self.value(value, (*keys, index), text=True)
                if value in ("", ".", ".."):
                    raise SpecError(f"{quote(str(value))} is no segment of a path", (*keys, index))

    def members(self, query: dict[str, Any], keys: Path) -> None:
        for name, value in query.items():
            with self.faults:
                self.value(value, (*keys, name), text=True)

    def headers(self, headers: dict[str, Any], key_header: str, keys: Path) -> None:
        seen = {key_header.lower(): "Dayfly sends it by itself; idempotencyKey names it"}
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
                seen[name.lower()] = "appears twice, in other letters"
                if isinstance(value, dict) and "$secret" in value:
                    _check_secret(value, here)
                    named = value["$secret"]["name"], value["$secret"]["key"]
                    if (first := variables.setdefault(variable := secret_variable(*named), named)) != named:
                        other = f"the key {first[1]} of {first[0]}"
                        problem = f"lies in the variable {variable}, as {other} does; rename one"
                        raise SpecError(problem, (*here, "$secret"))
                    continue
                self.value(value, here, text=True, more=("prefix",))
                if isinstance(value, str) and not (value.isascii() and value.isprintable()):
                    raise SpecError("a header holds ASCII characters on one line", here)

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
        """A constant, or what stands for an input or a variable."""
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
            raise SpecError(f"{quote(str(name))} is none of {', '.join(self.variables)}", (*keys, "$env"))


def _check_secret(value: dict[str, Any], keys: Path) -> None:
    named = value["$secret"]
    if value.keys() - {"$secret", "prefix"} or not isinstance(named, dict) or named.keys() != {"name", "key"}:
        raise SpecError("write {$secret: {name: ..., key: ...}}, and prefix beside it", keys)
    if not isinstance(named["name"], str):
        raise SpecError("names no Secret", (*keys, "$secret", "name"))
    kube_names.check_object("a Secret", named["name"], (*keys, "$secret", "name"))
    if not isinstance(named["key"], str) or not kube_names.is_key(named["key"]):
        raise SpecError("names no key of a Secret", (*keys, "$secret", "key"))
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
                    raise SpecError(f"{status} is no status of an answer: 200 to 599", (*keys, field, index))
                if field == "failed" and status in successes:
                    any_ = status not in (*expect.status, *begun)
                    advice = "write in status which are" if any_ else "leave one of the two out"
                    raise SpecError(f"{status} is a success too; {advice}", (*keys, field, index))


def _check_poll(poll: Poll, keys: Path, faults: Faults) -> None:
    for index, status in enumerate(poll.status):
        with faults:
            if not 200 <= status <= 299:
                raise SpecError(f"{status} does not say that a job was begun: 200 to 299", (*keys, "status", index))
    with faults:
        if poll.location:
            jsonpath.check(poll.location, (*keys, "location"))
    check_comparison(poll.until, (*keys, "until"), faults)
    if poll.failed is not None:
        check_comparison(poll.failed, (*keys, "failed"), faults)


def check_comparison(comparison: Comparison, keys: Path, faults: Faults, *, regex: bool = True) -> None:
    """The rules of one comparison; what is wrong goes to `faults`. `regex`: as for `jsonpath.check`."""
    with faults:
        jsonpath.check(comparison.path, (*keys, "path"), regex=regex)
    with faults:
        if not comparison.in_:
            raise SpecError("names no value; write what the path is compared with", (*keys, "in"))
    for index, value in enumerate(comparison.in_):
        with faults:
            if isinstance(value, dict | list):
                raise SpecError(f"{json.dumps(value)} is no plain value", (*keys, "in", index))
