"""The rules for params in a plugin's inputs: required, default, secret and test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.spec.errors import Path, SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEFAULT_BYTES = 64 * 1024
FIXED = "fixed"


class Rules(Protocol):
    """The rules for a param in an input with its name."""

    @property
    def name(self) -> str: ...
    @property
    def required(self) -> bool: ...
    @property
    def default(self) -> str | None: ...
    @property
    def secret(self) -> bool: ...
    @property
    def test(self) -> str: ...


def refuse_rules(wanted: Rules, keys: Path) -> None:
    """Refuse such rules for an input that is not a param."""
    for field in [*_rule_fields(wanted), *(["test"] if wanted.test else [])]:
        raise SpecError("belongs to an input with valueFromSandbox: true; leave it out", (*keys, field))


def check_values(wanted: Rules, keys: Path) -> None:
    """Refuse a default that is too long, and an unknown word in `test`."""
    if wanted.test not in ("", FIXED):
        raise SpecError(f"{quote(wanted.test)} is not known here; write {FIXED}, or leave it out", (*keys, "test"))
    if wanted.default is not None and len(wanted.default.encode()) > MAX_DEFAULT_BYTES:
        raise SpecError(f"a default has at most {MAX_DEFAULT_BYTES} bytes", (*keys, "default"))


def check(inputs: Iterable[tuple[Rules, Path]]) -> None:
    """Check that the rules of several steps for one param agree. Each input comes with its path."""
    defaults: dict[str, str] = {}
    required: set[str] = set()
    secret: set[str] = set()
    for wanted, here in inputs:
        if wanted.required:
            required.add(wanted.name)
        if wanted.secret:
            secret.add(wanted.name)
        if wanted.default is not None and defaults.setdefault(wanted.name, wanted.default) != wanted.default:
            problem = f"another step has the default {quote(defaults[wanted.name])} for this param; write one default"
            raise SpecError(problem, (*here, "default"))
        said = _rule_fields(wanted)
        if said and wanted.name in secret & (required | defaults.keys()):
            problem = "a secret is always required and is in no document: leave required and default out"
            raise SpecError(problem, (*here, said[0]))
        if wanted.name in required & defaults.keys() and (wanted.required or wanted.default is not None):
            raise SpecError("a param with a default is never missing; leave one of the two out", (*here, said[0]))


def _rule_fields(wanted: Rules) -> list[str]:
    """Return the rules of an input."""
    rules = {"required": wanted.required, "default": wanted.default is not None, "secret": wanted.secret}
    return [field for field, given in rules.items() if given]
