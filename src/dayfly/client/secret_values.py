"""Checks of secret values and of the server that receives them. No error message contains a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from dayfly.client.errors import DayflyError, Exit, InvalidError
from dayfly.execute.log_masks import MIN_VALUE_BYTES
from dayfly.spec.errors import SpecError

Secrets: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""By resource and by the param's name."""

MAX_VALUE_BYTES = 64 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def refuse_remote_server(url: str, option: str) -> None:
    """Refuse a server on another machine: secrets are never sent over a network. `option` names their option."""
    if urlsplit(url).hostname not in LOOPBACK:
        message = f"secrets are sent only to a server on this machine, and {url} is on another"
        raise DayflyError(Exit.USAGE, message, f"use the server of your home, or omit {option}")


def invalid_reason(value: str) -> str:
    """Return why a value cannot be a secret; empty if it can. Logs can only mask values of a certain length."""
    if not value:
        return "is empty"
    if len(value.rstrip("\r\n").encode(errors="surrogatepass")) < MIN_VALUE_BYTES:
        return f"has fewer than {MIN_VALUE_BYTES} bytes, too few to be masked in a log"
    size = len(value.encode(errors="surrogatepass"))
    return f"has {size} bytes; at most {MAX_VALUE_BYTES} are allowed" if size > MAX_VALUE_BYTES else ""


def check(secrets: Any, url: str) -> dict[str, dict[str, str]]:
    """Return secrets from a Python program as the server at `url` accepts them.

    Raises:
        DayflyError: the server is on another machine.
        InvalidError: some values cannot be secrets; the error has all of them by place.
    """
    refuse_remote_server(url, "secrets=")
    found: dict[str, dict[str, str]] = {}
    faults: list[SpecError] = []
    if not isinstance(secrets, Mapping):
        raise InvalidError([SpecError("must be a mapping of resources to mappings of names to texts", ("secrets",))])
    for resource, values in secrets.items():
        if not isinstance(values, Mapping):
            faults.append(SpecError("must be a mapping of names to texts", ("secrets", resource)))
            continue
        for name, value in values.items():
            why = invalid_reason(value) if isinstance(value, str) else f"is {type(value).__name__}, and must be a text"
            if why:
                faults.append(SpecError(why, ("secrets", resource, name)))
            else:
                found.setdefault(resource, {})[name] = value
    if faults:
        raise InvalidError(faults)
    return found
