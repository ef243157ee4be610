"""Each test changes its database as it likes: no other test sees the changes."""

import sqlite3


def count(shop: sqlite3.Connection, table: str) -> int:
    return int(shop.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_new_shop_has_products_and_no_purchases(shop: sqlite3.Connection) -> None:
    assert (count(shop, "product"), count(shop, "purchase")) == (200_000, 0)


def test_purchase_is_stored(shop: sqlite3.Connection) -> None:
    with shop:
        shop.execute("INSERT INTO purchase VALUES (1, 'Ada')")
    assert count(shop, "purchase") == 1


def test_shop_can_be_emptied(shop: sqlite3.Connection) -> None:
    with shop:
        shop.execute("DELETE FROM product")
    assert count(shop, "product") == 0
