"""Messages to the server: batches, retries and limits."""

from __future__ import annotations

import itertools

import pytest
from tests.kube.fake import rest
from tests.operator.rig.cluster_host_bench import report
from tests.operator.rig.dialer_bench import LONG, SAID, Bench, refusal, run_story, session, with_bench

from dayfly.link import dialer, wire
from dayfly.link.envelope import MAX_ENVELOPE_BYTES
from dayfly.link.http import TransportError
from dayfly.spec.run_data import HistoryEntry

SMALL = len(wire.encode(SAID))


class TestSaying:
    @with_bench
    async def test_messages_are_resent_until_confirmed(self, bench: Bench):
        bench.says("POST session", session(1))
        await rest(1)
        bench.says("POST messages", TransportError("lost"), {"received": 1}, {"received": 3})
        bench.hear(SAID)
        await rest(5)
        bench.hear(SAID)
        bench.hear(SAID)
        await rest(5)
        told = [(each["session"], each["first"], len(each["messages"])) for each in bench.of("POST messages")]
        assert told == [(1, 1, 1), (1, 1, 1), (1, 2, 2)]

    @with_bench
    async def test_partly_confirmed_batch_continues_from_there(self, bench: Bench):
        bench.says("POST session", session(1))
        await rest(1)
        bench.says("POST messages", {"received": 0}, {"received": 1}, {"received": 2})
        bench.hear(SAID)
        bench.hear(SAID)
        await rest(5)
        told = [(each["first"], len(each["messages"])) for each in bench.of("POST messages")]
        assert told == [(1, 2), (1, 2), (2, 1)]
        assert bench.dial.trouble == "", "a server may confirm nothing"

    @pytest.mark.parametrize("nothing", [[TransportError("slow")] * 2, [{"received": 0}, {"received": 1}]])
    @with_bench
    async def test_sending_backs_off_while_nothing_is_confirmed(self, bench: Bench, nothing):
        bench.says("POST session", session(1))
        await rest(1)
        bench.says("POST messages", *[nothing[0]] * 8, {"received": 1}, nothing[1], {"received": 2})
        bench.hear(SAID)
        await rest(300)
        bench.hear(SAID)
        await rest(300)
        times = bench.times("POST messages")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        for number, pause in enumerate(pauses[:8]):
            longest = min(dialer.MAX_UNREACHABLE_PAUSE_S, 2.0 ** min(number, 6))
            assert longest / 2 <= pause <= longest
        assert 0.5 <= pauses[9] <= 1

    @pytest.mark.parametrize(
        ("limit", "value", "said", "batches"),
        [
            ("MAX_MESSAGES", 2, [SAID] * 5, [2, 2, 1]),
            ("MAX_BATCH_BYTES", 2 * SMALL, [SAID] * 5, [2, 2, 1]),
            ("MAX_BATCH_BYTES", SMALL + len(wire.encode(LONG)) - 1, [SAID, LONG, SAID], [1, 1, 1]),
            ("MAX_BATCH_BYTES", 1, [SAID] * 2, [1, 1]),
        ],
    )
    def test_messages_are_sent_in_batches_in_order(self, monkeypatch, limit, value, said, batches):
        monkeypatch.setattr(dialer, limit, value)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", *({"received": sum(batches[: number + 1])} for number in range(len(batches))))
            for message in said:
                bench.hear(message)
            await rest(5)
            sent = [each["messages"] for each in bench.of("POST messages")]
            assert list(map(len, sent)) == batches
            assert [text for batch in sent for text in batch] == [wire.encode(message).decode() for message in said]

        run_story(story)

    @pytest.mark.parametrize("heard", [2, -1])
    @with_bench
    async def test_impossible_confirmation_ends_the_session(self, bench: Bench, heard):
        bench.says("POST session", session(1))
        await rest(1)
        bench.says("POST messages", {"received": heard})
        bench.hear(SAID)
        await rest(0.1)
        assert bench.dial.trouble == f"it claims to have received {heard} messages, which is impossible"
        assert bench.dial.session is None

    def test_late_confirmation_of_an_old_session_is_ignored(self, caplog):
        async def story(bench: Bench):
            async def late():
                bench.dial.reset_session()
                return {"received": 1}

            bench.says("POST session", session(1), session(2))
            await rest(1)
            bench.says("POST messages", late)
            bench.hear(SAID)
            await rest(5)
            assert (bench.dial.session, bench.dial.trouble) == (session(2), "")

        run_story(story)
        assert "which is impossible" not in caplog.text

    @pytest.mark.parametrize("kind", [wire.RunChanged, wire.RunEnded])
    def test_oversized_report_is_sent_without_its_text(self, monkeypatch, kind):
        """Otherwise the server would refuse it forever, and would receive no later message."""
        monkeypatch.setattr(dialer, "MAX_BODY_BYTES", 4_000)
        run = wire.RunStatus(uid="u", seq=7, report=report(message='"' * 2_000))

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"received": 1}, {"received": 2})
            bench.hear(kind(session=1, count=5, run=run))
            await rest(1)
            bench.hear(SAID)
            await rest(1)
            assert [
                wire.decode_to_server(text.encode()) for each in bench.of("POST messages") for text in each["messages"]
            ] == [
                kind(session=1, count=5, run=wire.RunStatus(uid="u", seq=7)),
                SAID,
            ]

        run_story(story)

    @pytest.mark.parametrize(("letter", "fits"), [("a", 2_000), ('"', 500), ("ä", 1_000), ("😀", 500)])
    def test_oversized_answer_is_refused_as_too_long(self, monkeypatch, caplog, letter, fits):
        monkeypatch.setattr(dialer, "MAX_BODY_BYTES", MAX_ENVELOPE_BYTES + 2_300)

        def answer(length: int) -> wire.Answer:
            entry = HistoryEntry(seq=1, at=1, unit="", attempt=0, move="", reason="", message=letter * length)
            return wire.History(session=1, number=9, entries=(entry,))

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST messages", {"received": 2})
            bench.hear(answer(fits))
            bench.hear(answer(2 * fits))
            await rest(1)
            [said] = bench.of("POST messages")
            whole, short = (wire.decode_to_server(text.encode()) for text in said["messages"])
            assert whole == answer(fits)
            assert isinstance(short, wire.Reply)
            assert (short.session, short.number, short.verdict) == (1, 9, wire.Verdict.REFUSED)
            assert short.message == "the answer is longer than a server accepts"

        run_story(story)
        [told] = [each.getMessage() for each in caplog.records if "than a server accepts" in each.getMessage()]
        assert told.startswith("History has ")

    @pytest.mark.parametrize("most", ["MAX_UNSENT", "MAX_UNSENT_BYTES"])
    def test_full_send_queue_begins_another_session(self, monkeypatch, most):
        one = len(wire.encode(SAID))
        monkeypatch.setattr(dialer, most, 3 if most == "MAX_UNSENT" else 3 * one - 1)

        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            for _ in range(3):
                bench.hear(SAID)
            assert bench.dial.session is not None
            bench.hear(SAID)
            assert bench.dial.session is None
            bench.hear(SAID)
            bench.says("POST session", session(2))
            bench.says("POST messages", {"received": 1})
            await rest(10)
            bench.hear(SAID)
            await rest(1)
            [told] = bench.of("POST messages")[-1:]
            assert (told["session"], told["first"], len(told["messages"])) == (2, 1, 1)

        run_story(story)


class TestLiving:
    @pytest.mark.parametrize(
        ("answer", "living"),
        [
            ({"session": 1, "uids": ["a"]}, frozenset({"a"})),
            ({"session": 1, "uids": ["a", "b"]}, frozenset({"a", "b"})),
            ({"session": 1, "uids": []}, frozenset()),
            ({"session": 1, "uids": ["a", "c"]}, None),
            (TransportError("lost"), None),
            (refusal(403), None),
        ],
    )
    @with_bench
    async def test_births_are_answered_only_for_requested_uids(self, bench: Bench, answer, living):
        assert await bench.dial.query_startable(("a", "b")) is None, "there is no session yet"
        bench.says("POST session", session(1))
        await rest(1)
        bench.says("POST births", answer)
        assert await bench.dial.query_startable(("a", "b")) == living
        assert bench.of("POST births") == [{"session": 1, "uids": ["a", "b"]}]
