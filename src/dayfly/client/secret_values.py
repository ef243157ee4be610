"""What may be given as a secret, and to whom. No sentence here has a value in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from dayfly.client.errors import DayflyError, Exit, InvalidError
from dayfly.execute.log_masks import MIN_VALUE_BYTES
from dayfly.spec.errors import SpecError

Secrets: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""By resource and by the param's name."""

MOST_VALUE_BYTES = 64 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def refuse_elsewhere(url: str, option: str) -> None:
    """Refuse a server on another machine: no secret goes over a network. `option` is what gives them."""
    if urlsplit(url).hostname not in LOOPBACK:
        message = f"secrets are given to a server of this machine alone, and {url} is elsewhere"
        raise DayflyError(Exit.USAGE, message, f"ask the server of your home, or leave {option} out")


def unfit(value: str) -> str:
    """Why a value cannot be a secret; empty if it can. What is too short or too long cannot be masked in a log."""
    if not value:
        return "is empty"
    if len(value.rstrip("\r\n").encode(errors="surrogatepass")) < MIN_VALUE_BYTES:
        return f"has fewer than {MIN_VALUE_BYTES} bytes, too few to be masked in a log"
    size = len(value.encode(errors="surrogatepass"))
    return f"has {size} bytes; at most {MOST_VALUE_BYTES} are allowed" if size > MOST_VALUE_BYTES else ""


def checked(secrets: Any, url: str) -> dict[str, dict[str, str]]:
    """Secrets that a program gives, as they go to the server at `url`.

    Raises:
        DayflyError: that server is elsewhere.
        InvalidError: all values that can be none, by their place.
    """
    refuse_elsewhere(url, "secrets=")
    found: dict[str, dict[str, str]] = {}
    faults: list[SpecError] = []
    if not isinstance(secrets, Mapping):
        raise InvalidError([SpecError("must be a mapping of resources to mappings of names to texts", ("secrets",))])
    for resource, values in secrets.items():
        if not isinstance(values, Mapping):
            faults.append(SpecError("must be a mapping of names to texts", ("secrets", resource)))
            continue
        for name, value in values.items():
            why = unfit(value) if isinstance(value, str) else f"is {type(value).__name__}, and must be a text"
            if why:
                faults.append(SpecError(why, ("secrets", resource, name)))
            else:
                found.setdefault(resource, {})[name] = value
    if faults:
        raise InvalidError(faults)
    return found
