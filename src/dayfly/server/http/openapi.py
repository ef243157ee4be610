"""The API described by itself: an OpenAPI 3.1 document, made out of the table of addresses."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dayfly.server.http import forms
from dayfly.server.http.route_table import API, ROUTES, WITH_TAGS, RouteOperation, reach

_AT = "#/components/schemas/{name}"
_REFUSED = "#/components/responses/{status}"
_MEANS = {
    "400": "What was sent is wrong; nothing was done.",
    "401": "There is no valid key, token or link with it.",
    "403": "Whoever asks may not.",
    "404": "There is nothing of that name here.",
    "409": "It does not go with what is there.",
    "412": "A precondition (If-Match, If-None-Match) does not hold.",
    "413": "What was sent is too long.",
    "415": "The body is not JSON in UTF-8, or it is encoded.",
    "429": "Too many requests; Retry-After says when to come again.",
    "501": "Dayfly does not have this.",
    "5XX": "The server, its store or a cluster cannot do it now.",
}
# Addresses of the public API that say where else to look.
_NOT_HERE = ("/orgs/{org}/sandboxes/{name}/status/explain",)


def document(version: str) -> dict[str, Any]:
    """All addresses with their methods, roles, queries, bodies and answers."""
    operations = [each for methods in ROUTES.values() for each in methods.values()]
    types = {
        forms.Error,
        *(_type(each.answer) for each in operations),
        *(each.body for each in operations if each.body),
    }
    _, schemas = msgspec.json.schema_components(sorted(types, key=lambda each: str(each.__name__)), ref_template=_AT)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dayfly", "version": version},
        "servers": [{"url": API}],
        "paths": {
            path: {"parameters": _named(path)} | {method.lower(): _operation(path, method, each) for method, each in of}
            for path, of in ((path, list(methods.items())) for path, methods in ROUTES.items())
        },
        "components": {
            "schemas": schemas,
            "responses": {
                status: {"description": says, "content": _content(forms.Error)} for status, says in _MEANS.items()
            },
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "signadot-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(path: str, method: str, operation: RouteOperation) -> dict[str, Any]:
    words = [method.lower(), *re.findall(r"\w+", path)]
    found: dict[str, Any] = {
        "operationId": "-".join(words),
        "summary": operation.says,
        "responses": {
            **({} if path in _NOT_HERE else {"200": {"description": "Done.", "content": _content(operation.answer)}}),
            **{status: {"$ref": _REFUSED.format(status=status)} for status in _refusals(path, method, operation)},
        },
        "security": [{"key": []}, {"bearer": []}] if operation.role else [],
    }
    if path in WITH_TAGS and method == "GET":
        found["responses"]["304"] = {"description": "Its ETag is in If-None-Match."}
    if operation.role:
        found["x-dayfly-role"] = operation.role.word
        found["x-dayfly-scope"] = reach(path, method).value
    if operation.query:
        found["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": type_}} for name, type_ in operation.query.items()
        ]
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _refusals(path: str, method: str, operation: RouteOperation) -> list[str]:
    """The statuses with which it may be refused."""
    changes, keyless = method != "GET", operation.role is None
    may = {
        "400": True,
        "401": not keyless or path.startswith("/agent/") or operation.body is not None,
        "403": True,
        "404": "{" in path,
        "409": changes or path.startswith("/agent/"),
        "412": changes,
        "413": operation.body is not None,
        "415": operation.body is not None,
        "429": not keyless,
        "501": path in _NOT_HERE,
        "5XX": True,
    }
    return [status for status in _MEANS if may[status]]


def _named(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _content(form: Any) -> dict[str, Any]:
    if form is forms.Events:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    one = {"$ref": _AT.format(name=_type(form).__name__)}
    return {"application/json": {"schema": {"type": "array", "items": one} if isinstance(form, list) else one}}


def _type(form: Any) -> Any:
    """A list of one form stands for a list of such."""
    return form[0] if isinstance(form, list) else form
