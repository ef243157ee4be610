"""The rate at which the Events of pods are queried."""

import asyncio

import msgspec
import pytest

from dayfly.execute.pod.read import format_time
from dayfly.kube.objects import Event, EventSeries, ObjectMeta, Pod
from dayfly.operator.pods.pod_events import MAX_QUEUE_MS, MIN_INTERVAL_MS, PAUSE_FACTOR, EventQuery, PodEvents
from dayfly.plan import messages
from dayfly.plan.world import NeverRan, Waiting

STARTED = 1_000_000


class _Server:
    """A server without Events, which counts the queries."""

    asked = 0
    items = ()

    async def page(self, *_args, **_options):
        self.asked += 1
        return self


def test_many_pods_that_hang_are_no_burden_to_the_server():
    """A registry is down: there are at most a hundred queries a second, whatever the number of pods is."""

    async def story(number: int) -> tuple[int, float]:
        now = STARTED
        server = _Server()
        events = PodEvents(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        queries = [EventQuery() for _ in pods]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        for _ in range(90):
            now += 1000
            for pod, query in zip(pods, queries, strict=True):
                assert await events.with_reason(pod, fact, query, recallable=True) == fact
        return server.asked, max(events.seconds_until_query(query) for query in queries)

    asked, longest = asyncio.run(story(3000))
    assert 6_000 < asked <= 90 * 100
    assert 3 < longest < 31
    asked, longest = asyncio.run(story(200))
    assert asked == 90 // 3 * 200
    assert longest < 4


def test_more_waiting_pods_are_queried_less_often():
    async def story() -> None:
        server = _Server()
        events = PodEvents(server, lambda: STARTED)
        pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        queries = [EventQuery() for _ in range(1000)]
        for query in queries:
            await events.with_reason(pod, fact, query, recallable=True)
        assert events.seconds_until_query(queries[0]) == 3.001
        assert events.seconds_until_query(queries[-1]) == pytest.approx(999 * MIN_INTERVAL_MS / 1000, abs=0.02)
        for query in queries[:-1]:
            events.forget(query)
        await events.with_reason(pod, fact, last := EventQuery(), recallable=True)
        assert events.seconds_until_query(last) == 3.001
        assert server.asked == 0

    asyncio.run(story())


def hung(number: int, takes: int, seconds: int, first: int = 0) -> tuple[int, float]:
    """Return how often a server is queried about pods that hang, and when it is queried next, in seconds.

    Its answers take `takes` milliseconds, and the first of them `first` more.
    """

    async def story() -> tuple[int, float]:
        now = STARTED

        class Slow(_Server):
            async def page(self, *_args, **_options):
                nonlocal now
                now += takes + (0 if self.asked else first)
                return await super().page()

        server = Slow()
        events = PodEvents(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        queries = [EventQuery() for _ in pods]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        while now < STARTED + seconds * 1000:
            now += 10
            for pod, query in zip(pods, queries, strict=True):
                assert await events.with_reason(pod, fact, query, recallable=True) == fact
        return server.asked, max(events.seconds_until_query(query) for query in queries)

    return asyncio.run(story())


def test_slow_server_is_queried_less_often():
    """Each query scans the Events of all pods: without a pause, the server would do nothing else."""
    asked, longest = hung(200, 100, 60)
    assert 60 < asked < 60_000 / (PAUSE_FACTOR * 100) * 1.1, "a fifth of its time, about"
    assert longest <= MAX_QUEUE_MS / 1000 + 0.1


def test_single_pod_is_queried_regularly_at_a_slow_server():
    fast, _ = hung(1, 0, 60)
    slow, _ = hung(1, 200, 60)
    assert fast in (19, 20)
    assert slow in (18, 19, 20)


def test_one_late_answer_soon_delays_no_further_questions():
    fast, _ = hung(5, 0, 60)
    late, longest = hung(5, 0, 60, first=400)
    assert late > 0.8 * fast
    assert longest < 4


def test_busy_kubelet_has_more_time_for_a_first_status():
    """With many pods the queue is the reason for the wait; a single pod is queried at once."""

    def first(others: int, reason: str) -> float:
        events = PodEvents(_Server(), lambda: STARTED)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(others + 1)]
        queries = [EventQuery() for _ in pods]
        for pod, query in zip(pods, queries, strict=True):
            asyncio.run(events.with_reason(pod, Waiting(since=STARTED, reason=reason), query, recallable=True))
        return round(events.seconds_until_query(queries[-1]), 1)

    assert first(0, "Starting") == first(0, "ContainerCreating") == 3
    assert first(200, "Starting") == 6
    assert first(200, "ContainerCreating") == 3


def test_pods_of_forgotten_runs_do_not_count_as_waiting():
    """The pods of a run only count as waiting while the run remembers them."""
    events = PodEvents(_Server(), lambda: STARTED)
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
    fact = Waiting(since=STARTED, reason="Starting")
    queries = [EventQuery() for _ in range(200)]
    for query in queries:
        asyncio.run(events.with_reason(pod, fact, query, recallable=True))
    del query, queries
    alone = EventQuery()
    asyncio.run(events.with_reason(pod, fact, alone, recallable=True))
    assert round(events.seconds_until_query(alone), 1) == 3


POD = msgspec.convert({"metadata": {"name": "p", "uid": "u", "namespace": "n"}}, Pod)
MUTE = Waiting(since=STARTED, reason="ContainerCreating")


def event(second: int, reason: str, note: str = "", *, warns: bool = False, **times) -> Event:
    """An Event of that second, in the old format unless `times` is set."""
    told = times or {"deprecated_last_timestamp": f"2026-01-01T00:00:{second:02}Z"}
    return Event(metadata=ObjectMeta(name="e"), reason=reason, note=note, type="Warning" if warns else "Normal", **told)


def explained(*events: Event, pod: Pod = POD, fact: Waiting = MUTE, after: int = 3_000, **how) -> tuple[Waiting, int]:
    """Return the message about a waiting pod, and the number of queries."""
    server = _Server()
    server.items = list(events)
    clock = [STARTED]
    told = PodEvents(server, lambda: clock[0])
    query = EventQuery()

    async def twice() -> Waiting:
        await told.with_reason(pod, fact, query, **{"recallable": True, **how})
        clock[0] += after
        return await told.with_reason(pod, fact, query, **{"recallable": True, **how})

    return asyncio.run(twice()), server.asked


def test_the_latest_word_is_said():
    said, asked = explained(
        event(1, "FailedMount", "no Secret", warns=True), event(2, "Failed", "no image", warns=True)
    )
    assert (said.reason, said.message, said.recallable, asked) == ("Failed", "no image", False, 1)
    assert explained()[0] == MUTE


def test_a_warning_without_a_reason_keeps_that_of_the_status():
    assert explained(event(1, "", "what", warns=True))[0].reason == "ContainerCreating"


def test_an_image_that_is_there_is_nothing_to_wait_for():
    """If two Events have the same second, the later one in the kubelet's order counts."""
    pulling, pulled = event(1, "Pulling", 'Pulling image "x:1"'), event(1, "Pulled", "it is there")
    assert explained(pulled, pulling)[0] == MUTE
    said = explained(pulling)[0]
    assert said.message == messages.pulling("x:1", format_time(1_767_225_601_000))
    assert said.recallable
    again = explained(pulled, event(2, "Pulling", 'Pulling image "x:1"'))[0]
    assert again.recallable


def test_words_of_no_weight_are_passed_over():
    assert explained(event(1, "Scheduled", "to a node"))[0] == MUTE


@pytest.mark.parametrize(
    ("late", "early"),
    [
        ({"deprecated_last_timestamp": "2026-01-01T00:00:09Z", "event_time": "2026-01-01T00:00:01Z"}, 5),
        ({"event_time": "2026-01-01T00:00:09Z"}, 5),
        ({"series": EventSeries(2, "2026-01-01T00:00:09Z"), "deprecated_last_timestamp": "2026-01-01T00:00:01Z"}, 5),
    ],
)
def test_repeated_event_counts_from_its_last_time(late, early):
    said, _ = explained(event(0, "Late", "late", warns=True, **late), event(early, "Early", "early", warns=True))
    assert said.message == "late"


def test_events_are_queried_after_a_silence_or_if_urgent():
    word = event(1, "Failed", "no image", warns=True)
    assert explained(word, after=2_999) == (MUTE, 0)
    assert explained(word, after=0, is_urgent=True)[0].message == "no image"
    meta = {"name": "p", "uid": "u", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    going = msgspec.convert({"metadata": meta}, Pod)
    assert explained(word, after=0, is_urgent=True, pod=going) == (MUTE, 0)
    said = explained(event(1, "Pulling", "Pulling image x"), pod=going, recallable=False)[0]
    assert (said.reason, said.recallable) == ("Pulling", False), "it is on its way out"


def test_pod_status_with_a_message_needs_no_events():
    told = msgspec.structs.replace(MUTE, message="no such image")
    assert explained(event(1, "Failed", "other", warns=True), fact=told) == (told, 0)


def test_a_kubelets_clock_that_is_ahead_delays_nothing():
    ahead = msgspec.structs.replace(MUTE, since=STARTED + 600_000)
    assert explained(event(1, "Failed", "no image", warns=True), fact=ahead)[0].message == "no image"


def test_cause_is_the_latest_warning_beyond_the_status():
    def last(*events: Event) -> str:
        server = _Server()
        server.items = list(events)
        return asyncio.run(PodEvents(server, lambda: STARTED).add_cause(POD, NeverRan(reason="r", message="m"))).message

    warning = event(1, "FailedMount", "no Secret", warns=True)
    assert last(warning, event(2, "Failed", "Error: ErrImagePull", warns=True)) == messages.with_last_report(
        "m", "no Secret"
    )
    assert last(warning, event(2, "Failed", "Error: no such image", warns=True)).endswith("Error: no such image")
    assert last(warning, event(0, "Failed", "before", warns=True)).endswith("no Secret")
    assert last(event(1, "Pulled", "it is there")) == "m"


@pytest.mark.parametrize(("due", "after"), [(STARTED + 2_000, 2.001), (STARTED, 0.001), (STARTED - 9, 0.001)])
def test_query_is_due_just_after_its_moment(due, after):
    query = EventQuery()
    query.next_query_at = due
    assert PodEvents(None, lambda: STARTED).seconds_until_query(query) == pytest.approx(after, abs=1e-6)


@pytest.mark.parametrize("moment", ["0000-06-01T00:00:00Z", "0000-12-31T23:30:00Z"])
def test_an_event_of_the_year_0_is_older_than_all_others(moment):
    """Users may write Events with such a time, which must not raise an error."""
    meta = ObjectMeta(name="e", uid="e", namespace="n")
    of_0, ours = (
        Event(metadata=meta, type="Warning", reason="R", note=note, deprecated_last_timestamp=at)
        for note, at in (("theirs", moment), ("ours", "2026-01-01T00:00:00Z"))
    )

    async def story() -> None:
        server = _Server()
        server.items = (ours, of_0)
        pod = msgspec.convert({"metadata": {"name": "p", "uid": "u", "namespace": "n"}}, Pod)
        end = NeverRan(reason="CannotStart", message="it did not start")
        assert "ours" in (await PodEvents(server, lambda: STARTED).add_cause(pod, end)).message

    asyncio.run(story())
