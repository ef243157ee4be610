"""The conversation with a control plane: what is said, and said again until it was heard; and what is kept of it."""

from __future__ import annotations

import base64
import itertools

import pytest
from rig.dialling import LONG, SAID, Bench, home, played, refusal, session
from rig.serving import report

from dayfly.kube.client import Client
from dayfly.kube.objects import SECRETS
from dayfly.operator.agent import dial
from dayfly.operator.agent.cursor import NAME, Cursor, Seen
from dayfly.operator.agent.way import Answer, WayError
from dayfly.spec import wire
from dayfly.spec.mailbox import MOST_ENVELOPE
from kube.fake import rest, run


class TestSaying:
    def test_it_is_said_again_until_it_was_heard_and_then_no_more(self):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", WayError("lost"), {"heard": 1}, {"heard": 3})
            bench.hear(SAID)
            await rest(5)
            bench.hear(SAID)
            bench.hear(SAID)
            await rest(5)
            told = [(each["session"], each["first"], len(each["messages"])) for each in bench.of("POST messages")]
            assert told == [(1, 1, 1), (1, 1, 1), (1, 2, 2)]
            assert (len(bench.dial._unheard), bench.dial._unheard_bytes) == (0, 0)

        played(story)

    def test_what_was_heard_in_part_goes_on_from_there(self):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 0}, {"heard": 1}, {"heard": 2})
            bench.hear(SAID)
            bench.hear(SAID)
            await rest(5)
            told = [(each["first"], len(each["messages"])) for each in bench.of("POST messages")]
            assert told == [(1, 2), (1, 2), (2, 1)]
            assert bench.dial.trouble == "", "that nothing was heard can be"

        played(story)

    @pytest.mark.parametrize("nothing", [[WayError("slow")] * 2, [{"heard": 0}, {"heard": 1}]])
    def test_a_server_that_hears_nothing_is_asked_ever_later(self, nothing):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", *[nothing[0]] * 8, {"heard": 1}, nothing[1], {"heard": 2})
            bench.hear(SAID)
            await rest(300)
            bench.hear(SAID)
            await rest(300)
            times = bench.times("POST messages")
            pauses = [after - before for before, after in itertools.pairwise(times)]
            for number, pause in enumerate(pauses[:8]):
                longest = min(dial.AWAY_PAUSE_S, 2.0 ** min(number, 6))
                assert longest / 2 <= pause <= longest
            assert 0.5 <= pauses[9] <= 1

        played(story)

    def test_what_has_no_room_waits_with_all_that_comes_after_it(self, monkeypatch):
        small, large = len(wire.encode(SAID)), len(wire.encode(LONG))
        monkeypatch.setattr(dial, "MOST_BYTES", small + large - 1)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 1}, {"heard": 2}, {"heard": 3})
            for message in (SAID, LONG, SAID):
                bench.hear(message)
            await rest(5)
            told = [(each["first"], [len(text) for text in each["messages"]]) for each in bench.of("POST messages")]
            assert told == [(1, [small]), (2, [large]), (3, [small])]

        played(story)

    @pytest.mark.parametrize("heard", [2, -1])
    def test_more_than_was_said_cannot_have_been_heard(self, heard):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": heard})
            bench.hear(SAID)
            await rest(0.1)
            assert bench.dial.trouble == f"it has heard {heard} messages, which cannot be"
            assert bench.dial.session is None

        played(story)

    def test_what_is_heard_of_a_session_that_is_over_counts_for_nothing(self, caplog):
        async def story(bench: Bench):
            async def late():
                bench.dial.begin_anew()
                return {"heard": 1}

            bench.says("POST session", session(1), session(2))
            await rest(1)
            bench.says("POST messages", late)
            bench.hear(SAID)
            await rest(5)
            assert (bench.dial.session, bench.dial.trouble) == (session(2), "")

        played(story)
        assert "which cannot be" not in caplog.text

    @pytest.mark.parametrize(("most", "size"), [("MOST_MESSAGES", 2), ("MOST_BYTES", None)])
    def test_much_is_said_in_parts(self, monkeypatch, most, size):
        one = len(wire.encode(SAID))
        monkeypatch.setattr(dial, most, size or 2 * one)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 2}, {"heard": 4}, {"heard": 5})
            for _ in range(5):
                bench.hear(SAID)
            await rest(5)
            assert [len(each["messages"]) for each in bench.of("POST messages")] == [2, 2, 1]

        played(story)

    def test_one_that_is_too_long_for_a_part_is_said_alone(self, monkeypatch):
        monkeypatch.setattr(dial, "MOST_BYTES", 1)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 1}, {"heard": 2})
            bench.hear(SAID)
            bench.hear(SAID)
            await rest(5)
            assert [len(each["messages"]) for each in bench.of("POST messages")] == [1, 1]

        played(story)

    @pytest.mark.parametrize("kind", [wire.Stands, wire.Ended])
    def test_a_report_for_which_no_request_has_room_is_left_to_be_asked_for(self, monkeypatch, kind):
        """Else it would be refused for ever, and nothing that comes after it would be heard."""
        monkeypatch.setattr(dial, "MOST_BODY", 4_000)
        run = wire.Standing(uid="u", seq=7, report=report(message='"' * 2_000))

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 1}, {"heard": 2})
            bench.hear(kind(session=1, count=5, run=run))
            await rest(1)
            bench.hear(SAID)
            await rest(1)
            assert [
                wire.read_to_control(text.encode()) for each in bench.of("POST messages") for text in each["messages"]
            ] == [
                kind(session=1, count=5, run=wire.Standing(uid="u", seq=7)),
                SAID,
            ]

        played(story)

    @pytest.mark.parametrize(("letter", "fits"), [("a", 2_000), ('"', 500), ("ä", 1_000), ("😀", 500)])
    def test_an_answer_for_which_no_request_has_room_is_said_to_be_too_long(self, monkeypatch, caplog, letter, fits):
        monkeypatch.setattr(dial, "MOST_BODY", MOST_ENVELOPE + 2_300)

        def answer(length: int) -> wire.Answer:
            entry = wire.HistoryEntry(seq=1, at=1, unit="", attempt=0, move="", reason="", message=letter * length)
            return wire.History(session=1, number=9, entries=(entry,))

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"heard": 2})
            bench.hear(answer(fits))
            bench.hear(answer(2 * fits))
            await rest(1)
            [said] = bench.of("POST messages")
            whole, short = (wire.read_to_control(text.encode()) for text in said["messages"])
            assert whole == answer(fits)
            assert isinstance(short, wire.Reply)
            assert (short.session, short.number, short.verdict) == (1, 9, wire.Verdict.REFUSED)
            assert short.message == "its answer is longer than a control plane hears"

        played(story)
        [told] = [each.getMessage() for each in caplog.records if "hears" in each.getMessage()]
        assert told.startswith("History has ")

    def test_as_much_as_may_wait_waits(self, monkeypatch):
        monkeypatch.setattr(dial, "MOST_UNHEARD_BYTES", 3 * len(wire.encode(SAID)))

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            for _ in range(4):
                bench.hear(SAID)
            assert bench.dial.session is not None
            assert len(bench.dial._unheard) == 4

        played(story)

    @pytest.mark.parametrize("most", ["MOST_UNHEARD", "MOST_UNHEARD_BYTES"])
    def test_what_is_not_heard_for_too_long_is_dropped_and_all_is_said_anew(self, monkeypatch, most):
        one = len(wire.encode(SAID))
        monkeypatch.setattr(dial, most, 3 if most == "MOST_UNHEARD" else 3 * one - 1)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            for _ in range(3):
                bench.hear(SAID)
            assert bench.dial.session is not None
            bench.hear(SAID)
            assert bench.dial.session is None
            bench.hear(SAID)
            assert len(bench.dial._unheard) == 0
            bench.says("POST session", session(2))
            bench.says("POST messages", {"heard": 1})
            await rest(10)
            bench.hear(SAID)
            await rest(1)
            [told] = bench.of("POST messages")[-1:]
            assert (told["session"], told["first"], len(told["messages"])) == (2, 1, 1)

        played(story)

    def test_an_answer_that_means_nothing_is_none(self):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", Answer(200, {}, b"\xff"), {"heard": 1})
            bench.hear(SAID)
            await rest(5)
            assert len(bench.of("POST messages")) == 2
            assert bench.dial.trouble == ""

        played(story)


class TestLiving:
    @pytest.mark.parametrize(
        ("answer", "living"),
        [
            ({"session": 1, "uids": ["a"]}, frozenset({"a"})),
            ({"session": 1, "uids": ["a", "b"]}, frozenset({"a", "b"})),
            ({"session": 1, "uids": []}, frozenset()),
            ({"session": 1, "uids": ["a", "c"]}, None),
            (WayError("lost"), None),
            (refusal(403), None),
        ],
    )
    def test_who_is_to_live(self, answer, living):
        async def story(bench: Bench):
            assert await bench.dial.living(("a", "b")) is None, "there is nobody to ask yet"
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST births", answer)
            assert await bench.dial.living(("a", "b")) == living
            assert bench.of("POST births") == [{"session": 1, "uids": ["a", "b"]}]

        played(story)


class TestCursor:
    def kept(self, **data: bytes) -> Seen:
        async def main() -> Seen:
            client = Client(home().transport("operator"), seed=1)
            if data:
                coded = {name: base64.b64encode(text).decode() for name, text in data.items()}
                body = {"metadata": {"name": NAME, "namespace": "dayfly-system"}, "data": coded}
                await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **body}, "dayfly-system")
            cursor = Cursor(client, "dayfly-system")
            await cursor.load()
            return cursor.seen

        return run(main())

    def test_what_is_no_number_is_none(self):
        assert self.kept() == Seen()
        assert self.kept(session=b"3", number=b"7", digest=b"d") == Seen(3, 7, "d")
        assert self.kept(session=b"x", number=b"9" * 19) == Seen()
        assert self.kept(number=b"9" * 18).number == int("9" * 18)
