"""How many requests a key may make: its own, not its neighbour's; said with when to come again."""

from __future__ import annotations

import shutil

from hypothesis import given
from hypothesis import strategies as st

from control.client import KEY, ORG
from control.lossy import call
from dayfly.control import auth, rate
from dayfly.control.app import create_app
from dayfly.control.rate import Rate
from dayfly.control.store import Store


@given(st.floats(0.5, 1000), st.lists(st.floats(0, 2), min_size=1, max_size=200))
def test_never_more_than_the_rate_and_what_it_gives_at_once(per_second, pauses):
    bucket, now, taken = Rate(per_second), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take("o", "k", now) == 0
    assert taken <= max(1, 2 * per_second) + per_second * now + 1e-6


def test_a_key_that_has_waited_as_long_as_it_was_told_may_go_on():
    bucket = Rate(0.5)
    assert bucket.take("o", "k", 0) == 0
    assert bucket.take("o", "k", 0) == 2
    assert bucket.take("o", "other", 0) == 0
    assert bucket.take("other", "k", 0) == 0
    assert bucket.take("o", "k", 1.9) == 1
    assert bucket.take("o", "k", 2.0) == 0


def test_keys_that_do_not_come_any_more_are_forgotten(monkeypatch):
    monkeypatch.setattr(rate, "MOST_BUCKETS", 10)
    bucket = Rate(1)
    for number in range(30):
        assert bucket.take("o", str(number), number) == 0
    assert len(bucket._buckets) <= 10


async def test_too_many_requests_are_refused_with_when_to_come_again(blank, tmp_path):
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {}, keys=auth.single(KEY), version="1", rate=0.01)
        assert (await call(app, KEY, "GET", f"{ORG}/sandboxes"))[0] == 200
        status, answer = await call(app, KEY, "GET", f"{ORG}/sandboxes")
        assert status == 429
        assert "come again in" in answer["error"]
        assert (await call(app, "wrong", "GET", f"{ORG}/sandboxes"))[0] == 401
    finally:
        store.close()
