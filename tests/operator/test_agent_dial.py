"""The connection to a server: sessions, and messages that are recorded and then carried out."""

from __future__ import annotations

import base64
import itertools

import msgspec
import pytest
from tests.kube.fake import Fault, Harm, rest
from tests.operator.rig.dialer_bench import SAID, Bench, letters, refusal, run_story, session, with_bench

from dayfly.kube.objects import SECRETS
from dayfly.link import dialer, wire
from dayfly.link.dialer import LastSeen
from dayfly.link.envelope import FROZEN_STATUS, UnreadMessages, chain_digest
from dayfly.link.http import HttpResponse, TransportError
from dayfly.operator.agent.cursor import NAME, SecretCursor
from dayfly.spec.run import EndRequest

DEEP = b"[" * 5_000 + b"]" * 5_000
TOO_DEEP = "cannot be read: maximum recursion depth exceeded while deserializing an object"


class TestSession:
    def test_session_is_recorded_when_it_begins(self, caplog):
        async def story(bench: Bench):
            bench.says("POST session", session(1))
            await rest(1)
            [opening] = bench.of("POST session")
            assert (opening["clusterUid"], opening["previous"], opening["number"]) == ("c", 0, 0)
            assert opening["version"]
            assert bench.met == [session(1)]
            assert (bench.dial.session, bench.dial.trouble) == (session(1), "")
            [kept] = [each for each in bench.server.objects("secrets") if each["metadata"]["name"] == NAME]
            assert kept["type"] == "dayfly.dev/agent"
            assert bench.of("GET messages") == [
                {"session": "1", "after": "0", "digest": "", "wait": str(dialer.LONG_POLL_S)}
            ]

        caplog.set_level("INFO", "dayfly.link.dialer")
        run_story(story)
        assert [record.getMessage() for record in caplog.records] == ["connected to the server as cluster east of acme"]

    @pytest.mark.parametrize(
        ("answer", "refused", "frozen", "why", "most"),
        [
            (refusal(401), 1, False, "no", dialer.MAX_REFUSED_PAUSE_S),
            (refusal(403), 1, False, "no", dialer.MAX_REFUSED_PAUSE_S),
            (refusal(400), 1, False, "no", dialer.MAX_REFUSED_PAUSE_S),
            (refusal(FROZEN_STATUS), 0, True, "no", dialer.MAX_REFUSED_PAUSE_S),
            (
                refusal(500),
                0,
                False,
                "it cannot be reached: it returned status 500: no",
                dialer.MAX_UNREACHABLE_PAUSE_S,
            ),
            (
                refusal(409),
                0,
                False,
                "it cannot be reached: it returned status 409: no",
                dialer.MAX_UNREACHABLE_PAUSE_S,
            ),
            (TransportError("closed"), 0, False, "it cannot be reached: closed", dialer.MAX_UNREACHABLE_PAUSE_S),
            (
                HttpResponse(500, {}, b"<html>"),
                0,
                False,
                "it cannot be reached: it returned status 500: status 500",
                10.0,
            ),
            (
                refusal(500, error="a\x1b" + "b" * 400),
                0,
                False,
                f"it cannot be reached: it returned status 500: a{'b' * 299}",
                10.0,
            ),
            (HttpResponse(500, {}, DEEP), 0, False, "it cannot be reached: it returned status 500: status 500", 10.0),
            (
                HttpResponse(200, {}, b'{"x": ' + DEEP + b"}"),
                0,
                False,
                f"it cannot be reached: its response {TOO_DEEP}",
                10.0,
            ),
            (session(1, check="x"), 0, False, "it cannot be reached: its response was altered in transit", 10.0),
            (session(2), 0, False, "it cannot be reached: its response was altered in transit", 10.0),
        ],
    )
    def test_failed_session_is_reported_once_and_retried_slowly(self, caplog, answer, refused, frozen, why, most):
        async def story(bench: Bench):
            bench.says("POST session", *[answer] * 12)
            await rest(1_000)
            assert (bench.dial.refusals, bench.dial.is_frozen) == (12 * refused, frozen)
            assert bench.dial.trouble == why
            assert bench.dial.session is None
            times = bench.times("POST session")
            pauses = [after - before for before, after in itertools.pairwise(times)]
            for number, pause in enumerate(pauses):
                longest = min(most, 2.0 ** min(number, 6))
                assert longest / 2 <= pause <= longest
            bench.says("POST session", session(1))

        run_story(story)
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert told == [f"the server: {why}. Received orders continue; the connection is retried"], "once"

    @with_bench
    async def test_session_follows_one_with_a_lost_response(self, bench: Bench):
        bench.says("POST session", refusal(409, there="4"), session(5))
        await rest(1)
        assert [each["previous"] for each in bench.of("POST session")] == [0, 4]
        assert bench.dial.session == session(5)

    @with_bench(seen=LastSeen(4, 3, "d"))
    async def test_known_session_is_followed_at_once(self, bench: Bench):
        bench.says("POST session", refusal(409, there="4"), session(5))
        await rest(1)
        assert [each["previous"] for each in bench.of("POST session")] == [4, 4]
        first, second = bench.times("POST session")
        assert first == second, "there is nothing to wait for"
        assert bench.dial.session == session(5)

    @with_bench
    async def test_next_session_does_not_repeat_old_messages(self, bench: Bench):
        bench.says("POST session", *[TransportError("away")] * 5, session(1))
        await rest(60)
        assert bench.dial.session == session(1)
        bench.says("POST messages", refusal(409, there="x"))
        bench.hear(SAID)
        bench.hear(SAID)
        await rest(0.1)
        assert (bench.dial.session, bench.dial.trouble) == (None, "")
        bench.says("POST session", session(2))
        await rest(1)
        assert bench.dial.session == session(2), "a second later at most"
        bench.says("POST messages", {"received": 1})
        bench.hear(SAID)
        await rest(1)
        told = bench.of("POST messages")[-1]
        assert (told["session"], told["first"], len(told["messages"])) == (2, 1, 1)

    @pytest.mark.parametrize("there", ["9" * 19, "9" * 5_000], ids=len)
    @with_bench(seen=LastSeen(4, 3, "d"))
    async def test_invalid_session_number_is_ignored(self, bench: Bench, there):
        bench.says("POST session", refusal(409, there=there), session(5))
        await rest(5)
        assert [each["previous"] for each in bench.of("POST session")] == [4, 4]
        assert bench.dial.session == session(5)

    @with_bench(seen=LastSeen(9, 3, "d"))
    async def test_session_number_that_went_back_is_not_followed(self, bench: Bench):
        bench.says("POST session", refusal(409, there="4"))
        await rest(30)
        assert [each["previous"] for each in bench.of("POST session")] == [9, 9]
        assert bench.dial.trouble == "", "another session is no trouble"

    def test_reset_session_opens_another_one(self, caplog):
        async def story(bench: Bench):
            bench.dial.reset_session()
            bench.says("POST session", session(1))
            await rest(1)
            bench.says("POST session", session(2))
            bench.dial.reset_session()
            await rest(5)
            assert bench.dial.session == session(2)

        run_story(story)
        assert sum("has fewer objects than before" in record.getMessage() for record in caplog.records) == 1


class TestHearing:
    @with_bench
    async def test_messages_are_recorded_and_carried_out_in_order(self, bench: Bench):
        stop = wire.encode(
            wire.Stop(session=1, number=1, uid="x", known=True, request=EndRequest(at=1, reason="r"))
        ).decode()
        first, seen = letters(LastSeen(1), stop, stop)
        second, after = letters(seen, stop)
        bench.says("POST session", session(1))
        bench.says("GET messages", first, second)
        await rest(1)
        assert len(bench.came) == 3
        assert bench.cursor.seen == after
        assert [each["after"] for each in bench.of("GET messages")] == ["0", "2", "3"]
        other = SecretCursor(bench.client, "dayfly-system")
        await other.load()
        assert other.seen == after

    @pytest.mark.parametrize("noted", ["seven", "\u00b2", "9" * 30, b"\xff"], ids=repr)
    def test_unreadable_cursor_counts_as_empty(self, noted):
        """Other users with rights to Secrets there can write anything; that must not stop the operator."""
        raw = noted if isinstance(noted, bytes) else noted.encode()

        async def story(bench: Bench):
            body = {"metadata": {"name": NAME}, "data": {"number": base64.b64encode(raw).decode()}}
            await bench.client.create(SECRETS, body, "dayfly-system")
            bench.says("POST session", session(1))
            await rest(5)
            assert [each["number"] for each in bench.of("POST session")] == [0]
            assert bench.dial.session == session(1)

        run_story(story)

    @pytest.mark.parametrize("body", ["{}", '{"type": "Stop", "x": ' + DEEP.decode() + "}"], ids=["empty", "too deep"])
    @with_bench
    async def test_meaningless_messages_are_skipped(self, bench: Bench, caplog, body):
        found, _ = letters(LastSeen(1), body)
        bench.says("POST session", session(1))
        bench.says("GET messages", found)
        await rest(1)
        assert len(bench.of("GET messages")) == 2

    @pytest.mark.parametrize(
        "change", [{"number": 2}, {"body": "b"}, {"number": 2, "digest": chain_digest("", 2, 5, "a")}], ids=str
    )
    @with_bench
    async def test_altered_messages_are_requested_again(self, bench: Bench, change):
        found, _ = letters(LastSeen(1), "a")
        [message] = found.messages
        wrong = UnreadMessages(messages=(msgspec.structs.replace(message, **change),))
        bench.says("POST session", session(1))
        bench.says("GET messages", wrong)
        await rest(5)
        assert bench.came == []
        assert bench.cursor.seen.number == 0
        assert len(bench.of("GET messages")) == 2, "it is requested again"
        assert len(bench.of("POST session")) == 1

    @with_bench
    async def test_session_ends_if_another_operator_moved_the_cursor(self, bench: Bench):
        async def late():
            other = SecretCursor(bench.client, "dayfly-system")
            await other.load()
            await other.save(LastSeen(1, 7, "d"))
            return letters(LastSeen(1), "{}")[0]

        bench.says("POST session", session(1), session(2))
        bench.says("GET messages", late)
        await rest(5)
        assert [each["number"] for each in bench.of("POST session")] == [0, 7]
        assert bench.dial.session == session(2)
        assert (bench.came, bench.dial.trouble) == ([], ""), "messages are recorded before they are carried out"

    @with_bench
    async def test_session_ends_if_the_cursor_is_deleted(self, bench: Bench):
        """Each retry fails the same way. If the session did not end, no message would be received or sent."""

        async def late():
            await bench.client.delete(SECRETS, NAME, "dayfly-system")
            return letters(LastSeen(1), "{}")[0]

        bench.says("POST session", session(1), refusal(409, there="1"), session(2))
        bench.says("GET messages", late)
        await rest(5)
        assert [(each["previous"], each["number"]) for each in bench.of("POST session")] == [(0, 0), (0, 0), (1, 0)]
        assert bench.dial.session == session(2)
        assert bench.came == [], "messages are recorded before they are carried out"

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (TransportError("closed"), "it cannot be reached: closed"),
            (refusal(502), "it cannot be reached: it returned status 502: no"),
            (HttpResponse(200, {}, b"<html>"), "it cannot be reached: its response cannot be read: "),
        ],
    )
    def test_unreachable_server_is_reported_once_per_outage(self, caplog, answer, why):
        """Otherwise the status would look fine while no message gets through."""

        async def story(bench: Bench):
            async def later():
                await rest(30)
                return letters(LastSeen(1))[0]

            bench.says("POST session", session(1))
            bench.says("GET messages", answer, later, *[answer] * 8, later)
            await rest(15)
            assert (bench.dial.trouble, bench.dial.is_connected) == ("", True), "a repaired connection is not reported"
            await rest(30)
            assert bench.dial.trouble.startswith(why)
            assert (bench.dial.session, bench.dial.is_connected) == (session(1), False)
            await rest(120)
            assert (bench.dial.trouble, bench.dial.is_connected) == ("", True)
            assert len(bench.of("POST session")) == 1

        caplog.set_level("INFO", "dayfly.link.dialer")
        run_story(story)
        told = [record.getMessage() for record in caplog.records][1:]
        assert len(told) == 2
        assert told[0].startswith(f"the server: {why}")
        assert told[1] == "the server is reachable again"

    @with_bench
    async def test_unwritable_cursor_is_reported_as_own_fault(self, bench: Bench):
        found, _ = letters(LastSeen(1), "{}")

        async def hindered():
            bench.server.faults = lambda call: Fault(Harm.UNREACHABLE) if call.request.method == "PATCH" else None
            return found

        bench.says("POST session", session(1))
        bench.says("GET messages", hindered, *[found] * 9)
        await rest(60)
        assert bench.dial.trouble.startswith("a message cannot be recorded in this cluster: PATCH ")
        assert (bench.came, bench.dial.is_connected) == ([], False)

    @with_bench
    async def test_question_is_answered_before_the_cursor_is_saved(self, bench: Bench):
        stop = wire.Stop(session=1, number=1, uid="x", known=True, request=EndRequest(at=1, reason="r"))
        question = wire.LogsQuery(session=1, number=2, uid="x")
        found, seen = letters(LastSeen(1), *(wire.encode(each).decode() for each in (stop, question)))

        async def hindered():
            bench.server.faults = lambda call: Fault(Harm.UNREACHABLE) if call.request.method == "PATCH" else None
            return found

        async def again():
            assert bench.came == [question], "orders wait for the cursor"
            bench.server.faults = lambda _: None
            return found

        bench.says("POST session", session(1))
        bench.says("GET messages", hindered, again)
        await rest(60)
        assert bench.came == [question, question, stop]
        assert bench.cursor.seen == seen

    @with_bench
    async def test_polling_backs_off_until_the_server_responds(self, bench: Bench):
        found, _ = letters(LastSeen(1), "{}")
        bench.says("POST session", session(1))
        bench.says("GET messages", *[TransportError("slow")] * 8, found, TransportError("slow"))
        await rest(300)
        times = bench.times("GET messages")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        for number, pause in enumerate(pauses[:8]):
            longest = min(dialer.MAX_UNREACHABLE_PAUSE_S, 2.0 ** min(number, 6))
            assert longest / 2 <= pause <= longest
        assert pauses[8] == 0
        assert pauses[9] <= 1
