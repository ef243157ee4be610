"""Versions: the canonical form, the order of semver.org, and names with versions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import semver

ASCENDING = [
    "0.0.0",
    "0.9.10",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
]
NUMBERS = st.integers(0, 99)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1", "1.0.0"),
        ("v1", "1.0.0"),
        ("1.0", "1.0.0"),
        ("v1.2.3", "1.2.3"),
        ("1.2.3-rc.1", "1.2.3-rc.1"),
        ("1.2.3-rc-1.0a+b-1.007", "1.2.3-rc-1.0a+b-1.007"),
        ("1.2.3+a-b", "1.2.3+a-b"),
    ],
)
def test_canonical(written, canonical):
    assert semver.canonical(written) == canonical
    assert semver.canonical(canonical) == canonical


@pytest.mark.parametrize(
    "written",
    [
        "",
        "v",
        "vv1",
        "V1",
        "x",
        "1.",
        ".1",
        "1.2.3.4",
        "01.0.0",
        "1.02.3",
        "1.0-rc",
        "1+b",
        "1.0.0-",
        "1.0.0-01",
        "1.0.0-a..b",
        "1.0.0+",
        "1.0.0+a+b",
        "1.0.0-ä",
        "-1.0.0",
        "1.0.0\n",
        "latest",
        "1" * 200,
        "\u0661.0.0",
    ],
)
def test_no_version(written):
    with pytest.raises(SpecError):
        semver.canonical(written)


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(ASCENDING, 2)))
def test_order(low, high):
    assert semver.compare(low, high) == -1
    assert semver.compare(high, low) == 1


def test_build_metadata_does_not_count():
    assert semver.compare("1.0.0+a", "1.0.0+b") == 0


@given(NUMBERS, NUMBERS, NUMBERS)
def test_names_round_trip(major, minor, patch):
    version = f"{major}.{minor}.{patch}"
    assert semver.split_name(semver.join_name("pg", version)) == ("pg", version)


def test_names():
    assert semver.split_name("a@1.0") == ("a", "1.0.0")
    assert semver.split_name("a") == ("a", "0.0.0")
    assert semver.join_name("a", "0.0.0") == "a"
    assert semver.join_name("a", "1.0.0") == "a@1.0.0"


@pytest.mark.parametrize("name", ["", "@1", "a@", "a@@1", "a@latest", "a b@1", "a@1@2"])
def test_bad_names(name):
    with pytest.raises(SpecError):
        semver.split_name(name)


def test_references():
    assert semver.split_reference("a") == ("a", "latest")
    assert semver.split_reference("a@latest") == ("a", "latest")
    assert semver.split_reference("a@v1") == ("a", "1.0.0")
