"""Versions of plugins: their canonical form, the order of semver.org, and names with a version."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars import names

UNVERSIONED = "0.0.0"
"""The version of a plugin whose name has no version; it is rendered as the name only."""

LATEST = "latest"
MAX_VERSION_LENGTH = 128

Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def canonical(version: str, keys: Path = ()) -> str:
    """Return the canonical form of a version: `1.0.0` for `v1`, `1.0` and `v1.0.0`. Build metadata is kept.

    Raises:
        SpecError: It is not a version. Shortened numbers must not have a pre-release or build part.
    """
    core, _, _ = version.removeprefix("v").partition("+")
    core, dash, pre = core.partition("-")
    _, plus, build = version.partition("+")
    numbers = core.split(".")
    whole = len(numbers) == 3 or (len(numbers) < 3 and not dash and not plus)
    good = (
        whole
        and len(version) <= MAX_VERSION_LENGTH
        and all(_is_number(number) for number in numbers)
        and (not dash or all(_is_identifier(part) and not _has_leading_zero(part) for part in pre.split(".")))
        and (not plus or all(_is_identifier(part) for part in build.split(".")))
    )
    if not good:
        raise SpecError(f"{quote(version)} is not a version: write it like 1.2.3 or 1.2.3-rc.1", keys)
    numbers += ["0"] * (3 - len(numbers))
    return ".".join(numbers) + dash + pre + plus + build


def precedence(version: str) -> Precedence:
    """Return a sort key of canonical versions in semver.org's order: `1.0.0-rc.2 < 1.0.0-rc.10 < 1.0.0`."""
    core, _, _ = version.partition("+")
    core, dash, pre = core.partition("-")
    major, minor, patch = (int(number) for number in core.split("."))
    identifiers = tuple((not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in pre.split(".")) if dash else ()
    return major, minor, patch, not dash, identifiers


def order(version: str) -> tuple[Precedence, str]:
    """Return a key like `precedence`, with the text as tie-breaker for build metadata, so that one version is the
    highest.
    """
    return precedence(version), version


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1 as the canonical version `left` is below, equal to or above `right`, without build metadata."""
    ours, theirs = precedence(left), precedence(right)
    return (ours > theirs) - (ours < theirs)


def split_name(name: str, keys: Path = ()) -> tuple[str, str]:
    """Return `("a", "1.0.0")` for `a@1.0` and `("a", "0.0.0")` for `a`, both checked."""
    bare, at, version = name.partition("@")
    names.check("plugin", bare, keys)
    return bare, canonical(version, keys) if at else UNVERSIONED


def split_reference(name: str, keys: Path = ()) -> tuple[str, str]:
    """Return the same as `split_name` for a requested plugin: no version means `latest`, which may also be written."""
    bare, at, version = name.partition("@")
    names.check("plugin", bare, keys)
    return bare, canonical(version, keys) if at and version != LATEST else LATEST


def join_name(bare: str, version: str) -> str:
    """Return the wire form of a name and its canonical version: the name for 0.0.0, otherwise `name@x.y.z`."""
    return bare if version == UNVERSIONED else f"{bare}@{version}"


def _is_identifier(part: str) -> bool:
    return part.isascii() and part.replace("-", "a").isalnum()


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and not _has_leading_zero(part)


def _has_leading_zero(part: str) -> bool:
    return part.isdigit() and len(part) > 1 and part[0] == "0"
