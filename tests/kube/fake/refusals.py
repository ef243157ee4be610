"""Refusals of the server."""

from __future__ import annotations

from typing import Any

import msgspec

from dayfly.kube.transport import Answer

REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    409: "Conflict", 410: "Expired", 415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests",
    500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip


class Refusal(Exception):  # noqa: N818 - an answer of the server, not an error of the test
    """The request is answered with a Status."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        causes: tuple[tuple[str, str], ...] = (),
        about: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.about = about or {}
        self.code = code
        self.reason = reason or REASONS[code]
        self.causes = causes

    def status(self) -> dict[str, Any]:
        details: dict[str, Any] = dict(self.about)
        if self.causes:
            details["causes"] = [{"reason": why, "field": field, "message": str(self)} for why, field in self.causes]
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
            **({"details": details} if details else {}),
        }

    def answer(self) -> Answer:
        return Answer(self.code, msgspec.json.encode(self.status()))


def invalid(field: str, message: str) -> Refusal:
    return Refusal(422, f"{field}: {message}", causes=(("FieldValueInvalid", field),))


def not_found(plural: str, name: str) -> Refusal:
    kind, _, group = plural.partition(".")
    return Refusal(404, f'{plural} "{name}" not found', about={"name": name, "group": group, "kind": kind})
