"""Lists of inventory scripts: what is complete, and what proves nothing."""

import json

import pytest

from dayfly.plan.leaks.listing import MAX_LISTING_BYTES, InventoryItem, parse_listing

ID = "0123456789abcdef0123456789"


def output(*rows: object, **end: object) -> bytes:
    ending = {"complete": True, "count": len(rows), **end}
    return "".join(json.dumps(row) + "\n" for row in (*rows, ending)).encode()


def test_complete_list_has_its_items_in_order():
    rows = ({"id": ID, "name": f"a-{ID}", "created": "2026-11-30T19:00:00Z", "token": "t"}, {"name": "b"})
    listing = parse_listing(output(*rows))
    assert listing.is_complete
    assert listing.items == (InventoryItem(ID, f"a-{ID}", 1_796_065_200_000, "t"), InventoryItem("", "b"))


def test_complete_list_may_be_empty():
    listing = parse_listing(output())
    assert (listing.is_complete, listing.items) == (True, ())


@pytest.mark.parametrize(
    ("created", "milliseconds"),
    [
        (1_796_065_200, 1_796_065_200_000),
        ("2026-11-30T20:00:00+01:00", 1_796_065_200_000),
        ("2026-11-30T19:00:00.123456Z", 1_796_065_200_000),
        (None, 0),
    ],
)
def test_creation_time_is_read_in_each_form(created: object, milliseconds: int):
    assert parse_listing(output({"name": "a", "created": created})).items[0].created == milliseconds


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (output({"name": "a"}).rsplit(b"\n", 2)[0], "it is incomplete"),
        (output({"name": "a"})[:-4], "it is incomplete"),
        (output({"name": "a"}, count=2), "count 2, but there are 1 items"),
        (output({"name": "a"}, {"name": "b"}, count=1), "count 1, but there are 2 items"),
        (output({"name": "a"}, complete=False), "complete: false"),
        (output({"name": "a"}) + b"An error occurred (AccessDenied)\n", "it is incomplete"),
        (b"not json\n" + output(count=1), "line 1 is invalid"),
        (output({"id": ID}), "name is missing"),
        (output({"name": "a", "tokn": "t"}), "line 1 is invalid"),
        (output({"name": "a", "created": "2026-11-30T19:00:00"}), "with a time zone"),
        (output({"name": "a", "created": -1}), "with a time zone"),
        (output({"name": "a", "created": "yesterday"}), "line 1 is invalid"),
        (output({"name": "a" * 1025}), "more than 1024 characters"),
        (b"\xff\n" + output(count=1), "line 1 is invalid"),
        (b"[" * 5000 + b"\n" + output(count=1), "line 1 is invalid"),
        (b" " * MAX_LISTING_BYTES + output(), "more than 8 MiB"),
    ],
)
def test_invalid_or_incomplete_list_has_an_error_and_no_items(text: bytes, error: str):
    listing = parse_listing(text)
    assert not listing.is_complete
    assert error in listing.error
    assert listing.items == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"dayfly-{ID}", True),
        (f"database dayfly_{ID}", True),
        (f"dayfly{ID}", True),  # y is not a hexadecimal digit
        (f"{ID}.db", True),
        (f"dayfly-{ID}0", False),
        (f"dayfly-{ID}x", False),
        (f"dayfly-0{ID}", False),
        (f"dayfly-{ID[:-1]}", False),
        (f"dayfly-{ID[:-1]}8", False),
        ("snapshot-of-orders", False),
    ],
)
def test_name_has_the_id_only_if_no_other_character_extends_it(name: str, expected: bool):
    assert InventoryItem(ID, name).is_named_by_id is expected
