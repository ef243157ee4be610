"""Schema words for webhooks. The schema accepts values that may be variable; `spec.steps.webhook` checks them."""

from dayfly.spec.schema.crd_schema import VALUES, Row, Schema, text
from dayfly.spec.steps import webhook

_VARIABLE = "A string, {$input: name} or {$env: NAME}."


def _duration(about: str) -> Schema:
    return text(about, 16, pattern="^([0-9]{1,9}[smh])?$")


def _statuses(about: str) -> Schema:
    return {"description": about, "maxItems": VALUES, "items": {"minimum": 200, "maximum": 599}}


FIELDS: dict[type, Row] = {
    webhook.Comparison: {
        "path": text("A JSONPath (RFC 9535).", 1024, pattern=r"^\$"),
        "in_": {"description": "The values of which it finds one.", "maxItems": VALUES, "minItems": 1},
    },
    webhook.Expect: {
        "status": _statuses("Statuses that are successes; any 2xx if left out."),
        "failed": _statuses("Statuses that are certain failures, of those that leave it open otherwise."),
    },
    webhook.Poll: {
        "status": _statuses("Statuses by which a job was begun."),
        "location": text("A JSONPath that finds where to ask for it; empty: the header Location.", 1024),
        "until": text("What holds once the job is done."),
        "failed": text("What holds once it has failed."),
    },
    webhook.Find: {
        "path": {"description": f"Further segments of the path. {_VARIABLE}", "maxItems": VALUES},
        "query": text(f"Members of the query. {_VARIABLE}"),
        "when": text("What holds of the answer if the request was carried out; left out, a 2xx is enough."),
    },
    webhook.Tls: {"ca": text("Certificates in PEM form that are believed instead of the system's.", 32_768)},
    webhook.WebhookTimeouts: {
        "connect": _duration("Longest time for name, connection and handshake, like 10s."),
        "answer": _duration("Longest time from the request to the end of its answer, like 60s."),
    },
    webhook.Webhook: {
        "method": text("Method of the request.", enum=list(webhook.METHODS)),
        "url": text(
            "URL of the server: scheme, host, port and path.",
            webhook.MAX_URL_CHARACTERS,
            pattern=r"^https?://[^/?#@\\\s]+(/[^?#\\\s]*)?$",
        ),
        "path": {"description": f"Further segments of the path. {_VARIABLE}", "maxItems": VALUES},
        "query": text(f"Members of the query. {_VARIABLE}"),
        "headers": text(f"Headers. {_VARIABLE} Or {{$secret: {{name, key}}}}, each with a constant prefix."),
        "body": text("Sent as JSON; {$input: name} stands for an input anywhere in it."),
        "expect": text("What the status of the answer means."),
        "poll": text("How a long job is followed."),
        "find": text("How to see, when no answer came, whether the request was carried out."),
        "tls": text("Whom to believe."),
        "idempotency_key": text(
            "Header of the key that stays the same until an answer has come.",
            128,
            default=webhook.DEFAULT_KEY_HEADER,
            pattern=f"^({webhook.HEADER})?$",
        ),
        "timeouts": text("Limits of each exchange; timeouts.run of the step is that of all of them."),
    },
}
