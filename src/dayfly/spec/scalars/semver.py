"""Versions of plugins: one canonical spelling, the order of semver.org, and names that carry a version."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars import names

UNVERSIONED = "0.0.0"
"""The version of a plugin whose name carries none; it is rendered as the bare name."""

LATEST = "latest"
LONGEST = 128

Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def canonical(version: str, keys: Path = ()) -> str:
    """The one spelling of a version: `v1`, `1.0` and `v1.0.0` are all `1.0.0`; build metadata is kept.

    Raises:
        SpecError: not a version; shortened numbers go only without a pre-release and build part.
    """
    core, _, _ = version.removeprefix("v").partition("+")
    core, dash, pre = core.partition("-")
    _, plus, build = version.partition("+")
    numbers = core.split(".")
    whole = len(numbers) == 3 or (len(numbers) < 3 and not dash and not plus)
    good = (
        whole
        and len(version) <= LONGEST
        and all(_is_number(number) for number in numbers)
        and (not dash or all(_is_identifier(part) and not _has_leading_zero(part) for part in pre.split(".")))
        and (not plus or all(_is_identifier(part) for part in build.split(".")))
    )
    if not good:
        raise SpecError(f"{quote(version)} is not a version: write it like 1.2.3 or 1.2.3-rc.1", keys)
    numbers += ["0"] * (3 - len(numbers))
    return ".".join(numbers) + dash + pre + plus + build


def precedence(version: str) -> Precedence:
    """A key that sorts canonical versions as semver.org orders them: `1.0.0-rc.2 < 1.0.0-rc.10 < 1.0.0`."""
    core, _, _ = version.partition("+")
    core, dash, pre = core.partition("-")
    major, minor, patch = (int(number) for number in core.split("."))
    identifiers = tuple((not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in pre.split(".")) if dash else ()
    return major, minor, patch, not dash, identifiers


def order(version: str) -> tuple[Precedence, str]:
    """As `precedence`, and of versions that differ in build metadata alone by their text: one of all is the highest."""
    return precedence(version), version


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as the canonical version `left` is below, equal to or above `right`; build metadata does not count."""
    ours, theirs = precedence(left), precedence(right)
    return (ours > theirs) - (ours < theirs)


def split_name(name: str, keys: Path = ()) -> tuple[str, str]:
    """`a@1.0` -> `("a", "1.0.0")`, `a` -> `("a", "0.0.0")`; both halves checked."""
    bare, at, version = name.partition("@")
    names.check("plugin", bare, keys)
    return bare, canonical(version, keys) if at else UNVERSIONED


def split_reference(name: str, keys: Path = ()) -> tuple[str, str]:
    """As `split_name` for a plugin somebody asks for: no version means `latest`, which may also be written out."""
    bare, at, version = name.partition("@")
    names.check("plugin", bare, keys)
    return bare, canonical(version, keys) if at and version != LATEST else LATEST


def join_name(bare: str, version: str) -> str:
    """The wire form of a name and its canonical version: bare for 0.0.0, else `name@x.y.z`."""
    return bare if version == UNVERSIONED else f"{bare}@{version}"


def _is_identifier(part: str) -> bool:
    return part.isascii() and part.replace("-", "a").isalnum()


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and not _has_leading_zero(part)


def _has_leading_zero(part: str) -> bool:
    return part.isdigit() and len(part) > 1 and part[0] == "0"
