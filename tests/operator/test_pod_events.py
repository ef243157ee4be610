"""How often the kubelets' Events are asked for."""

import asyncio

import msgspec
import pytest

from dayfly.execute.pod.read import stamp
from dayfly.kube.objects import Event, EventSeries, ObjectMeta, Pod
from dayfly.operator.pods.pod_events import APART_MS, LONGEST_MS, RESPITE, PodEvents, Silence, _bare
from dayfly.plan import words
from dayfly.plan.world import NeverRan, Waiting

STARTED = 1_000_000


class _Server:
    """One that has no Events; it counts how often it was asked."""

    asked = 0
    items = ()

    async def page(self, *_args, **_options):
        self.asked += 1
        return self


def test_many_pods_that_hang_are_no_burden_to_the_server():
    """A registry is down: whatever their number, a hundred questions are asked in a second at most."""

    async def story(number: int) -> tuple[int, float]:
        now = STARTED
        server = _Server()
        events = PodEvents(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        silences = [Silence() for _ in pods]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        for _ in range(90):
            now += 1000
            for pod, silence in zip(pods, silences, strict=True):
                assert await events.explain(pod, fact, silence) == fact
        return server.asked, max(events.again_in(silence) for silence in silences)

    asked, longest = asyncio.run(story(3000))
    assert 6_000 < asked <= 90 * 100
    assert 3 < longest < 31
    asked, longest = asyncio.run(story(200))
    assert asked == 90 // 3 * 200
    assert longest < 4


def test_the_more_pods_wait_the_later_each_of_them_is_asked_about():
    async def story() -> None:
        server = _Server()
        events = PodEvents(server, lambda: STARTED)
        pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        silences = [Silence() for _ in range(1000)]
        for silence in silences:
            await events.explain(pod, fact, silence)
        assert events.again_in(silences[0]) == 3.001
        assert events.again_in(silences[-1]) == pytest.approx(999 * APART_MS / 1000, abs=0.02)
        for silence in silences[:-1]:
            events.end(silence)
        await events.explain(pod, fact, last := Silence())
        assert events.again_in(last) == 3.001
        assert server.asked == 0

    asyncio.run(story())


def hung(number: int, takes: int, seconds: int) -> tuple[int, float]:
    """How often a server that takes so many milliseconds is asked about pods that hang, and when it is asked again."""

    async def story() -> tuple[int, float]:
        now = STARTED

        class Slow(_Server):
            async def page(self, *_args, **_options):
                nonlocal now
                now += takes
                return await super().page()

        server = Slow()
        events = PodEvents(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        silences = [Silence() for _ in pods]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        while now < STARTED + seconds * 1000:
            now += 10
            for pod, silence in zip(pods, silences, strict=True):
                assert await events.explain(pod, fact, silence) == fact
        return server.asked, max(events.again_in(silence) for silence in silences)

    return asyncio.run(story())


def test_a_server_that_takes_its_time_over_events_is_given_respite():
    """It looks through those of all pods each time: asked about each of a crowd, it would do nothing else."""
    asked, longest = hung(200, 100, 60)
    assert 60 < asked < 60_000 / (RESPITE * 100) * 1.1, "a fifth of its time, about"
    assert longest <= LONGEST_MS / 1000 + 0.1


def test_whoever_stands_in_line_asks_in_its_turn():
    async def story() -> None:
        clock, server, silence = [STARTED], _Server(), Silence()
        events = PodEvents(server, lambda: clock[0])
        await events.explain(POD, MUTE, silence)
        clock[0] += 3_000
        events._apart, events._line = 500, clock[0] + 1_000
        await events.explain(POD, MUTE, silence)
        assert (server.asked, events.again_in(silence)) == (0, 1.001)
        clock[0] += 1_000
        await events.explain(POD, MUTE, silence)
        assert server.asked == 1

    asyncio.run(story())


@pytest.mark.parametrize(("ahead", "stands"), [(LONGEST_MS, True), (LONGEST_MS + 1, False)])
def test_whoever_would_stand_in_line_for_too_long_looks_again_later(ahead, stands):
    """Most of those before it have started by then."""
    events, silence = PodEvents(_Server(), lambda: STARTED), Silence()
    events._apart, events._line = 500, STARTED + ahead
    assert events._stands_in_line(silence, STARTED)
    assert (silence.in_line, silence.due, events._line) == (
        stands,
        STARTED + LONGEST_MS,
        STARTED + ahead + 500 * stands,
    )


def test_a_pod_alone_is_asked_about_as_often_however_slow_the_server():
    fast, _ = hung(1, 0, 60)
    slow, _ = hung(1, 200, 60)
    assert fast in (19, 20)
    assert slow in (18, 19, 20)


def test_an_answer_that_was_late_by_chance_is_soon_forgotten():
    took = iter([400])
    now = STARTED

    class Once(_Server):
        async def page(self, *_args, **_options):
            nonlocal now
            now += next(took, 0)
            return await super().page()

    async def story() -> None:
        nonlocal now
        events, pod = PodEvents(Once(), lambda: now), msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
        for number in range(12):
            if number == 1:
                late = events._apart
            if number == 2:
                assert events._apart == late / 4, "it has answered twice"
            await events.explain(pod, Waiting(since=STARTED, reason="ContainerCreating"), silence := Silence())
            now += 10_000
            await events.explain(pod, Waiting(since=STARTED, reason="ContainerCreating"), silence)
        assert events._apart == APART_MS

    asyncio.run(story())


def test_a_kubelet_that_is_busy_with_many_pods_is_given_more_time_for_its_first_status():
    """In bulk that is what keeps them waiting; a pod alone is asked about as soon as any."""

    def first(others: int, reason: str) -> float:
        events = PodEvents(_Server(), lambda: STARTED)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(others + 1)]
        silences = [Silence() for _ in pods]
        for pod, silence in zip(pods, silences, strict=True):
            asyncio.run(events.explain(pod, Waiting(since=STARTED, reason=reason), silence))
        return round(events.again_in(silences[-1]), 1)

    assert first(0, "Starting") == first(0, "ContainerCreating") == 3
    assert first(200, "Starting") == 6
    assert first(200, "ContainerCreating") == 3


def test_pods_whose_runs_are_forgotten_are_waited_for_no_more():
    """They count among those that keep kubelets busy only as long as something is remembered of them."""
    events = PodEvents(_Server(), lambda: STARTED)
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
    fact = Waiting(since=STARTED, reason="Starting")
    silences = [Silence() for _ in range(200)]
    for silence in silences:
        asyncio.run(events.explain(pod, fact, silence))
    del silence, silences
    alone = Silence()
    asyncio.run(events.explain(pod, fact, alone))
    assert round(events.again_in(alone), 1) == 3


POD = msgspec.convert({"metadata": {"name": "p", "uid": "u", "namespace": "n"}}, Pod)
MUTE = Waiting(since=STARTED, reason="ContainerCreating")


def event(second: int, reason: str, note: str = "", *, warns: bool = False, **times) -> Event:
    """One of that second of an hour, told as the old API does unless `times` say otherwise."""
    told = times or {"deprecated_last_timestamp": f"2026-01-01T00:00:{second:02}Z"}
    return Event(metadata=ObjectMeta(name="e"), reason=reason, note=note, type="Warning" if warns else "Normal", **told)


def explained(*events: Event, pod: Pod = POD, fact: Waiting = MUTE, after: int = 3_000, **how) -> tuple[Waiting, int]:
    """What is said of a pod that waits, and how often the server was asked."""
    server = _Server()
    server.items = list(events)
    clock = [STARTED]
    told = PodEvents(server, lambda: clock[0])
    silence = Silence()

    async def twice() -> Waiting:
        await told.explain(pod, fact, silence, **how)
        clock[0] += after
        return await told.explain(pod, fact, silence, **how)

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
    """Of two words in one second the later in the kubelet's order counts."""
    pulling, pulled = event(1, "Pulling", 'Pulling image "x:1"'), event(1, "Pulled", "it is there")
    assert explained(pulled, pulling)[0] == MUTE
    said = explained(pulling)[0]
    assert said.message == words.pulls("x:1", stamp(1_767_225_601_000))
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
def test_what_happened_again_counts_from_its_last_time(late, early):
    said, _ = explained(event(0, "Late", "late", warns=True, **late), event(early, "Early", "early", warns=True))
    assert said.message == "late"


def test_nobody_asks_before_it_has_been_silent_for_a_while_unless_it_presses():
    word = event(1, "Failed", "no image", warns=True)
    assert explained(word, after=2_999) == (MUTE, 0)
    assert explained(word, after=0, pressing=True)[0].message == "no image"
    meta = {"name": "p", "uid": "u", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    going = msgspec.convert({"metadata": meta}, Pod)
    assert explained(word, after=0, pressing=True, pod=going) == (MUTE, 0)
    said = explained(event(1, "Pulling", "Pulling image x"), pod=going)[0]
    assert (said.reason, said.recallable) == ("Pulling", False), "it is on its way out"


def test_what_its_status_tells_is_enough():
    told = msgspec.structs.replace(MUTE, message="no such image")
    assert explained(event(1, "Failed", "other", warns=True), fact=told) == (told, 0)


def test_a_kubelets_clock_that_is_ahead_delays_nothing():
    ahead = msgspec.structs.replace(MUTE, since=STARTED + 600_000)
    assert explained(event(1, "Failed", "no image", warns=True), fact=ahead)[0].message == "no image"


def test_last_words_are_the_last_warning_that_says_more_than_the_status():
    def last(*events: Event) -> str:
        server = _Server()
        server.items = list(events)
        return asyncio.run(
            PodEvents(server, lambda: STARTED).last_words(POD, NeverRan(reason="r", message="m"))
        ).message

    warning = event(1, "FailedMount", "no Secret", warns=True)
    assert last(warning, event(2, "Failed", "Error: ErrImagePull", warns=True)) == words.last_words("m", "no Secret")
    assert last(warning, event(2, "Failed", "Error: no such image", warns=True)).endswith("Error: no such image")
    assert last(warning, event(0, "Failed", "before", warns=True)).endswith("no Secret")
    assert last(event(1, "Pulled", "it is there")) == "m"


@pytest.mark.parametrize(
    ("note", "bare"),
    [("Error: ErrImagePull", True), ("Error: no such image", False), ("ErrImagePull", False), ("no image", False)],
)
def test_a_warning_is_bare_if_it_is_a_reason_of_the_status_and_no_more(note, bare):
    assert _bare(event(1, "Failed", note, warns=True)) is bare


@pytest.mark.parametrize(("due", "after"), [(STARTED + 2_000, 2.001), (STARTED, 0.001), (STARTED - 9, 0.001)])
def test_it_is_asked_about_a_hair_after_its_moment(due, after):
    silence = Silence()
    silence.due = due
    assert PodEvents(None, lambda: STARTED).again_in(silence) == pytest.approx(after, abs=1e-6)


@pytest.mark.parametrize("moment", ["0000-06-01T00:00:00Z", "0000-12-31T23:30:00Z"])
def test_an_event_of_the_year_0_is_older_than_all_others(moment):
    """The server takes one from whoever may write Events, and nothing may stand still over it."""
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
        assert "ours" in (await PodEvents(server, lambda: STARTED).last_words(pod, end)).message

    asyncio.run(story())
