"""The OpenAPI 3.1 document of the API, generated from the route table."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dayfly.server.http import forms
from dayfly.server.http.route_table import API, ROUTES, WITH_TAGS, RouteOperation, reach

_SCHEMA_REF = "#/components/schemas/{name}"
_RESPONSE_REF = "#/components/responses/{status}"
_ERRORS = {
    "400": "The request is invalid; nothing was changed.",
    "401": "The request has no valid key, token or link.",
    "403": "The role or scope of the key does not allow the request.",
    "404": "No object has that name.",
    "409": "The request conflicts with the current state.",
    "412": "A precondition (If-Match, If-None-Match) does not hold.",
    "413": "The body is too long.",
    "415": "The body is not JSON in UTF-8, or it has a content encoding.",
    "429": "Too many requests; Retry-After has the seconds to wait.",
    "501": "Dayfly does not support this.",
    "5XX": "The server, its store or a cluster is unavailable.",
}
_PATH = {
    "org": "The organisation; `dayfly up` has only `local`.",
    "name": "The name of the object.",
    "namespace": "The namespace of the baseline.",
    "id": "The ID of the key or token.",
}
# Endpoints of the public API whose error message names an alternative.
_UNSUPPORTED = ("/orgs/{org}/sandboxes/{name}/status/explain",)


def document(version: str) -> dict[str, Any]:
    """Return the document: all paths with methods, roles, parameters, bodies and answers.

    docs/reference/rest.md is generated from it.
    """
    operations = [each for methods in ROUTES.values() for each in methods.values()]
    types = {
        forms.Error,
        *(_type(each.answer) for each in operations),
        *(each.body for each in operations if each.body),
    }
    _, schemas = msgspec.json.schema_components(
        sorted(types, key=lambda each: str(each.__name__)), ref_template=_SCHEMA_REF
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dayfly", "version": version},
        "servers": [{"url": API}],
        "paths": {
            path: {"parameters": _path_parameters(path)}
            | {method.lower(): _operation(path, method, each) for method, each in methods.items()}
            for path, methods in ROUTES.items()
        },
        "components": {
            "schemas": schemas,
            "responses": {
                status: {"description": text, "content": _content(forms.Error)} for status, text in _ERRORS.items()
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
        "summary": operation.summary,
        "responses": {
            **({} if path in _UNSUPPORTED else {"200": {"description": "OK", "content": _content(operation.answer)}}),
            **{status: {"$ref": _RESPONSE_REF.format(status=status)} for status in _errors(path, method, operation)},
        },
        "security": [{"key": []}, {"bearer": []}] if operation.role else [],
    }
    if path in WITH_TAGS and method == "GET":
        found["responses"]["304"] = {"description": "The object's ETag is in If-None-Match."}
    if operation.role:
        found["x-dayfly-role"] = operation.role.api_name
        found["x-dayfly-scope"] = reach(path, method).value
    if operation.query:
        found["parameters"] = [
            {"name": name, "in": "query", "description": each.meaning, "schema": {"type": each.type}}
            for name, each in operation.query.items()
        ]
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _errors(path: str, method: str, operation: RouteOperation) -> list[str]:
    """Return the error statuses that an operation may have."""
    is_change, is_keyless = method != "GET", operation.role is None
    possible = {
        "400": True,
        "401": not is_keyless or path.startswith("/agent/") or operation.body is not None,
        "403": True,
        "404": "{" in path,
        "409": is_change or path.startswith("/agent/"),
        "412": is_change,
        "413": operation.body is not None,
        "415": operation.body is not None,
        "429": not is_keyless,
        "501": path in _UNSUPPORTED,
        "5XX": True,
    }
    return [status for status in _ERRORS if possible[status]]


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": _PATH[name], "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _content(form: Any) -> dict[str, Any]:
    if form in (forms.Events, forms.Metrics):
        return {"text/event-stream" if form is forms.Events else "text/plain": {"schema": {"type": "string"}}}
    one = {"$ref": _SCHEMA_REF.format(name=_type(form).__name__)}
    return {"application/json": {"schema": {"type": "array", "items": one} if isinstance(form, list) else one}}


def _type(form: Any) -> Any:
    """Return the type of a form, or of the items if it is a list with one form."""
    return form[0] if isinstance(form, list) else form
