"""Requests for states over HTTP, without a server: limits of bodies, timeouts, and the answer to each error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.kube.fake import run

from dayfly.execute.state import access, handler
from dayfly.execute.state.handler import ANSWER_TIMEOUT_S, BODY_TIMEOUT_S, SMALL_BODY, StateHandler
from dayfly.execute.state.head import StateResponse
from dayfly.execute.state.seal import MAX_BODY
from dayfly.execute.state.service import MAX_LOCK_BYTES
from dayfly.spec.host_errors import RunDamagedError

WHO = access.state_caller("u", "db", "db/make", 1)
JSON = StateResponse(200, b"{}", json=True)
LARGE = b"x" * (SMALL_BODY + 1)


class StoreError(Exception):
    """An error that a host's store may raise for a while."""


class Service:
    """Accepts everything from its caller after `takes_s` seconds, and records it."""

    def __init__(
        self, refusal: StateResponse | None = None, answer: StateResponse | Exception = JSON, takes_s: float = 0.0
    ) -> None:
        self.refusal, self.answer, self.takes_s = refusal, answer, takes_s
        self.run, self.asked, self.open, self.most_open = "u", [], 0, 0

    def identify(self, _path, given):
        assert given == "Basic eA=="
        return SimpleNamespace(run=self.run)

    async def admit(self, _who, _method):
        return self.refusal

    async def handle(self, _who, *asked):
        self.asked.append(asked)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        await asyncio.sleep(self.takes_s)
        self.open -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def new_handler(service: Service, **options) -> StateHandler:
    return StateHandler(service, **{"max_large_bodies": 2, "unavailable": (StoreError,), **options})


async def ask(app, method="GET", *pieces: bytes, query=b"", ends=True):
    """Return status, content type and body. The request has these pieces of a body, and ends after them or never."""
    sent, waiting = [], list(pieces or (b"",))

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting) or not ends}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", b"Basic eA==")]
    scope = {"type": "http", "path": "/u/db", "method": method, "query_string": query, "headers": headers}
    await app(scope, receive, send)
    start, rest = sent
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(rest["body"])
    return start["status"], dict(start["headers"])[b"content-type"], rest["body"]


async def test_answer_of_the_service_is_sent():
    service = Service()
    assert await ask(new_handler(service), "POST", b"state", query=b"a=b&ID=l%201") == (200, b"application/json", b"{}")
    assert service.asked == [("POST", "l 1", b"state")]
    service.answer = StateResponse(404, b"none\n")
    assert await ask(new_handler(service)) == (404, b"text/plain; charset=utf-8", b"none\n")
    assert service.asked[-1] == ("GET", "", b"")


async def test_body_of_a_refused_request_is_not_read():
    service = Service(refusal=StateResponse(403, b"no\n"))
    assert (await ask(new_handler(service), "POST", ends=False))[::2] == (403, b"no\n")
    assert service.asked == []


@pytest.mark.parametrize(
    ("method", "limit"), [("POST", MAX_BODY), ("PUT", MAX_BODY), ("LOCK", MAX_LOCK_BYTES), ("DELETE", MAX_LOCK_BYTES)]
)
async def test_body_at_the_limit_is_accepted_and_one_byte_more_is_not(method, limit):
    service = Service()
    body = b"x" * limit
    for pieces in ((body,), (body[:-2], b"x", b"x"), (body[:-SMALL_BODY], body[-SMALL_BODY:])):
        assert (await ask(new_handler(service), method, *pieces))[0] == 200
        assert (await ask(new_handler(service), method, *pieces, b"x"))[0] == 413
    assert [asked[2] for asked in service.asked] == [body] * 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), b"the state cannot be read or written now: No space left on device\n"),
        (RunDamagedError("the record of run u cannot be read"), b"the record of run u cannot be read\n"),
        (StoreError("away"), handler.UNAVAILABLE.body),
    ],
)
async def test_error_of_the_host_is_answered_with_503(error, said):
    assert await ask(new_handler(Service(answer=error))) == (503, b"text/plain; charset=utf-8", said)


async def test_client_that_is_gone_changes_nothing():
    async def receive():
        return {"type": "http.disconnect"}

    async def send(_message):
        """The body is not read."""

    service = Service()
    headers = [(b"authorization", b"Basic eA==")]
    scope = {"type": "http", "path": "/u/db", "method": "POST", "query_string": b"", "headers": headers}
    await new_handler(service)(scope, receive, send)
    assert service.asked == []


async def test_lifespan_event_is_not_answered():
    await new_handler(Service())({"type": "lifespan"}, None, None)


@pytest.mark.parametrize(("body", "most_open"), [(b"x" * SMALL_BODY, 4), (LARGE, 2)], ids=["small", "large"])
async def test_few_large_bodies_are_in_memory_at_once(body, most_open):
    service = Service(takes_s=0.01)
    app = new_handler(service)
    found = await asyncio.gather(*(ask(app, "POST", body) for _ in range(4)))
    assert [status for status, *_ in found] == [200] * 4
    assert service.most_open == most_open


@pytest.mark.parametrize(("one_per_run", "second"), [(True, 503), (False, 200)])
async def test_second_large_body_of_a_run_is_refused_by_option(one_per_run, second):
    service = Service(takes_s=0.01)
    app = new_handler(service, one_large_body_per_run=one_per_run)
    found = await asyncio.gather(*(ask(app, "POST", LARGE) for _ in range(2)))
    assert [status for status, *_ in found] == [200, second]
    assert (await ask(app, "POST", LARGE))[0] == 200, "the first request has ended"


@pytest.mark.parametrize("begun", [b"x", LARGE], ids=["small", "large"])
def test_stalled_bodies_are_refused_and_free_their_places(begun):
    """Suspended clients can use all slots for large bodies. Other states must not wait for them."""

    async def story():
        app, loop = new_handler(Service()), asyncio.get_running_loop()
        stalled = [asyncio.create_task(ask(app, "POST", begun, ends=False)) for _ in range(2)]
        await asyncio.sleep(1)
        assert (await ask(app, "POST", LARGE))[0] == 200
        assert [(await each)[0] for each in stalled] == [503, 503]
        assert loop.time() == BODY_TIMEOUT_S

    run(story())


@pytest.mark.parametrize("body", [b"x", LARGE], ids=["small", "large"])
@pytest.mark.parametrize(("takes_s", "status"), [(BODY_TIMEOUT_S + 1, 200), (ANSWER_TIMEOUT_S + 1, 503)])
def test_slow_store_has_more_time_than_a_body(body, takes_s, status):
    async def story():
        assert (await ask(new_handler(Service(takes_s=takes_s)), "POST", body))[0] == status

    run(story())
