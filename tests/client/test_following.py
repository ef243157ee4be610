"""`follow` yields each change once, despite lost streams."""

from __future__ import annotations

import pytest
from tests.client.relay import relayed
from tests.server import specs
from tests.server.client import KEY

from dayfly.client import NotFoundError, RetryPolicy, UnreachableError
from dayfly.client.address import Address
from dayfly.client.changes import Change, ChangeTracker, EventParser
from dayfly.client.connection import run_iterator
from dayfly.client.follower import Follower
from dayfly.client.json_client import JsonClient

QUICK = RetryPolicy(patience=20, first=0.01, longest=0.05)


@pytest.fixture
def cut(server, connect):
    """A client behind a relay."""
    with relayed(server.port) as relay:
        yield relay, connect(f"http://127.0.0.1:{relay.port}", KEY, retries=QUICK)


def told(change):
    return change.kind, change.name


def labels(change):
    return change.name, (change.now.spec.get("labels") or {}).get("n")


def test_follow_lists_the_current_state_then_changes(dayfly, host, server):
    for name in ("sb1", "sb2"):
        server.put(f"sandboxes/{name}", specs.empty())
    stream = dayfly.sandboxes.follow()
    assert [told(next(stream)) for _ in range(3)] == [("changed", "sb1"), ("changed", "sb2"), ("synced", "")]
    server.put("sandboxes/sb2", specs.empty(labels={"n": "1"}))
    assert labels(next(stream)) == ("sb2", "1")
    (uid,) = [uid for uid, offer in host.offers.items() if offer.name == "sb1"]
    server.delete("sandboxes/sb1")
    host.finish(uid)
    while told(change := next(stream)) != ("deleted", "sb1"):
        assert told(change) == ("changed", "sb1")
    stream.close()


def test_follow_of_one_name_ends_with_its_deletion(dayfly, host, server):
    with pytest.raises(NotFoundError):
        next(dayfly.sandboxes.follow("sb1"))
    server.put("sandboxes/sb1", specs.empty())
    seen = []
    for change in dayfly.sandboxes.follow("sb1"):
        seen.append(told(change))
        if change.kind == "synced":
            (uid,) = host.offers
            server.delete("sandboxes/sb1")
            host.finish(uid)
            server.call("GET", "sandboxes/sb1")
    assert (seen[0], seen[1], seen[-1]) == (("changed", "sb1"), ("synced", ""), ("deleted", "sb1"))


def test_a_stream_that_is_cut_goes_on_where_it_was(cut, server):
    relay, dayfly = cut
    server.put("sandboxes/sb1", specs.empty())
    stream = dayfly.sandboxes.follow()
    assert [told(next(stream)) for _ in range(2)] == [("changed", "sb1"), ("synced", "")]
    for n in ("1", "2", "3"):
        relay.cut()
        server.put("sandboxes/sb1", specs.empty(labels={"n": n}))
        assert labels(next(stream)) == ("sb1", n), "once, and no known state"
    assert relay.made == 4
    stream.close()


def test_follow_reports_deletions_during_a_server_restart():
    """The restarted server restarts its event numbers, so it sends everything again."""
    tracker: ChangeTracker[str] = ChangeTracker()
    said = [*tracker.record("a", "1"), *tracker.record("b", "1"), *tracker.end_pass()]
    assert [(each.kind, each.name) for each in said] == [("changed", "a"), ("changed", "b"), ("synced", "")]
    tracker.start_pass()
    assert list(tracker.record("b", "1")) == [], "the state is known"
    assert list(tracker.end_pass()) == [Change("deleted", "a")]
    assert list(tracker.record("b", "2")) == [Change("changed", "b", "2")]
    assert list(tracker.remove("a")) == [], "it is already reported"


def test_route_groups_have_no_stream(dayfly, server):
    wish = {"spec": {"cluster": "local", "match": {"label": {"key": "a", "value": "b"}}}}
    server.put("routegroups/all", wish)
    stream = dayfly.route_groups.follow("all", poll=0.02)
    assert [told(next(stream)) for _ in range(2)] == [("changed", "all"), ("synced", "")]
    server.put("routegroups/all", {"spec": {**wish["spec"], "labels": {"n": "1"}}})
    while (change := next(stream)).now.spec.get("labels") is None:
        assert change.kind == "changed"
    stream.close()
    with pytest.raises(NotFoundError):
        next(dayfly.route_groups.follow("none"))


def test_a_server_that_stays_away_is_said(cut, server, connect):
    relay, _ = cut
    dayfly = connect(f"http://127.0.0.1:{relay.port}", KEY, retries=RetryPolicy(patience=0.2, first=0.01, longest=0.05))
    server.put("sandboxes/sb1", specs.empty())
    stream = dayfly.sandboxes.follow()
    assert [told(next(stream)) for _ in range(2)] == [("changed", "sb1"), ("synced", "")]
    relay.close()
    with pytest.raises(UnreachableError, match="no server answers"):
        next(stream)


class Quiet:
    """An `Io` whose connections are streams: one piece per hour, and then the end."""

    def __init__(self, *streams):
        self.streams = list(streams)
        self.hours = 0

    async def connect(self, to, timeout):  # noqa: ASYNC109 # as an Io has it
        self.pieces = [b"HTTP/1.1 200 OK\r\n\r\n", *self.streams.pop(0), b""]
        return self

    async def send(self, data, timeout):  # noqa: ASYNC109 # as above
        pass

    async def receive(self, timeout):  # noqa: ASYNC109 # as above
        self.hours += 1
        return self.pieces.pop(0)

    async def pause(self, seconds):
        pass

    def close(self):
        pass

    def now(self):
        return self.hours * 3600.0


def test_follow_reconnects_after_repeated_cuts():
    """As with a proxy that ends long streams. Without changes, a server only sends heartbeats."""
    still, news = [b": still here\n\n"], [b'event: changed\nid: a-2\ndata: {"name": "sb1"}\n\n']
    io = Quiet([b"event: synced\nid: a-1\ndata: {}\n\n"], still, still, still, news)
    json_client = JsonClient(lambda: Address("http://a:1", "k"), io, timeout=30, retries=QUICK)
    changes = run_iterator(Follower(json_client, dict, "/changes", None, "", 1).changes())
    assert [told(next(changes)) for _ in range(2)] == [("synced", ""), ("changed", "sb1")]
    changes.close()


class Mute(Quiet):
    async def receive(self, timeout):  # noqa: ASYNC109 # as above
        raise TimeoutError


def test_follower_polls_when_no_stream_gets_through():
    answers = iter([[("sb1", {"n": 1})], [("sb1", {"n": 2})], []])

    async def read():
        return next(answers)

    json_client = JsonClient(lambda: Address("http://a:1", "k"), Mute([]), timeout=30, retries=QUICK)
    changes = run_iterator(Follower(json_client, dict, "/changes", read, "", 1).changes())
    said = [next(changes) for _ in range(4)]
    assert [told(each) for each in said] == [("changed", "sb1"), ("synced", ""), ("changed", "sb1"), ("deleted", "sb1")]
    assert [said[0].now, said[2].now] == [{"n": 1}, {"n": 2}]
    changes.close()


def test_a_stream_in_any_pieces_is_the_same_events():
    text = b': hello\n\nid: a-1\nevent: changed\ndata: {"a":\ndata: 1}\n\n: still here\n\ndata:x\r\n\r\nid: a-2\n\n'
    whole = list(EventParser().feed(text))
    assert [(each.id, each.kind, each.data) for each in whole] == [
        ("a-1", "changed", b'{"a":\n1}'),
        ("", "message", b"x"),
        ("a-2", "message", b""),
    ]
    for size in range(1, len(text)):
        events = EventParser()
        assert [event for at in range(0, len(text), size) for event in events.feed(text[at : at + size])] == whole
