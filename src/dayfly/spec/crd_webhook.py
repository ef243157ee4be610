"""As `crd_fields`, for webhooks. Where a value may be variable the schema lets all pass; `spec.webhook` does not."""

from typing import Any

from dayfly.spec import webhook

_Schema = dict[str, Any]
_Row = dict[str, _Schema]

_MANY = 64
_VARIABLE = "A string, {$input: name} or {$env: NAME}."


def _text(about: str, longest: int | None = None, **more: Any) -> _Schema:
    bound = {} if longest is None else {"maxLength": longest}
    return {"description": about, **bound, **more}


def _duration(about: str) -> _Schema:
    return _text(about, 16, pattern="^([0-9]{1,9}[smh])?$")


def _statuses(about: str) -> _Schema:
    return {"description": about, "maxItems": _MANY, "items": {"minimum": 200, "maximum": 599}}


FIELDS: dict[type, _Row] = {
    webhook.Comparison: {
        "path": _text("A JSONPath (RFC 9535).", 1024, pattern=r"^\$"),
        "in_": {"description": "The values of which it finds one.", "maxItems": _MANY, "minItems": 1},
    },
    webhook.Expect: {
        "status": _statuses("Statuses that are successes; any 2xx if left out."),
        "failed": _statuses("Statuses that are certain failures, of those that leave it open otherwise."),
    },
    webhook.Poll: {
        "status": _statuses("Statuses by which a job was begun."),
        "location": _text("A JSONPath that finds where to ask for it; empty: the header Location.", 1024),
        "until": _text("What holds once the job is done."),
        "failed": _text("What holds once it has failed."),
    },
    webhook.Find: {
        "path": {"description": f"Further segments of the path. {_VARIABLE}", "maxItems": _MANY},
        "query": _text(f"Members of the query. {_VARIABLE}"),
        "when": _text("What holds of the answer if the request was carried out; left out, a 2xx is enough."),
    },
    webhook.Tls: {"ca": _text("Certificates in PEM form that are believed instead of the system's.", 32_768)},
    webhook.Limits: {
        "connect": _duration("Longest time for name, connection and handshake, like 10s."),
        "answer": _duration("Longest time from the request to the end of its answer, like 60s."),
    },
    webhook.Webhook: {
        "method": _text("Method of the request.", enum=list(webhook.METHODS)),
        "url": _text(
            "URL of the server: scheme, host, port and path.",
            webhook.MAX_URL_CHARACTERS,
            pattern=r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$",
        ),
        "path": {"description": f"Further segments of the path. {_VARIABLE}", "maxItems": _MANY},
        "query": _text(f"Members of the query. {_VARIABLE}"),
        "headers": _text(f"Headers. {_VARIABLE} Or {{$secret: {{name, key}}}}, each with a constant prefix."),
        "body": _text("Sent as JSON; {$input: name} stands for an input anywhere in it."),
        "expect": _text("What the status of the answer means."),
        "poll": _text("How a long job is followed."),
        "find": _text("How to see, when no answer came, whether the request was carried out."),
        "tls": _text("Whom to believe."),
        "idempotency_key": _text(
            "Header of the key that stays the same until an answer has come.", 128, default=webhook.DEFAULT_KEY_HEADER
        ),
        "timeouts": _text("Limits of each exchange; timeouts.run of the step is that of all of them."),
    },
}
