"""The program that sends a webhook: one order in its environment, one byte as its end, all it did on standard output.

A request is sent once. Without an answer it is not sent again here, whatever else is tried: `find` is asked until it
says that it was carried out, or the time is waited out in which it might be. What may run twice ends at once, and the
next attempt sends it again under the same key.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a plain file, without the environment's way to packages: ours lies above
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from dayfly.execute.log_masks import overwritten
from dayfly.execute.webhook.exit_codes import ORDER, ExitCode, is_open, of_status
from dayfly.execute.webhook.http_exchange import (
    Resolve,
    ResponseLostError,
    ServerAccess,
    UnsentError,
    WebhookResponse,
    resolve,
    send,
)
from dayfly.execute.webhook.request import (
    RequestValues,
    UnfitError,
    WebhookRequest,
    asking,
    build,
    following,
    rewritten,
)
from dayfly.execute.webhook.response_values import UntakenError, as_bytes, one

TRIES = 4
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LAST_PAUSE_S = 2.0
SHOWN_BYTES = 64 * 1024


class Over(Exception):  # noqa: N818 - an end, and perhaps a good one
    """It has ended so: 0, or one of `ends`. A `definite` end is the server's own word on the request."""

    def __init__(self, code: int, sentence: str = "", *, definite: bool = False) -> None:
        super().__init__(sentence)
        self.code = code
        self.definite = definite


class WebhookSender:
    """One attempt. `order` is what `render` has written, `environment` has the values."""

    def __init__(
        self,
        order: Mapping[str, Any],
        environment: Mapping[bytes, bytes],
        *,
        resolver: Resolve = resolve,
        say: Callable[[bytes], None],
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._written: Mapping[str, Any] = order["request"]
        self._resolver = resolver
        self._say = say
        self._pause = pause
        self._clock = clock
        self._cancelled = False
        self._masked = [environment[name.encode()] for name in order["sensitive"] if name.encode() in environment]
        self._until: float = clock() + order["seconds"]
        values = {name: environment.get(variable.encode()) for name, variable in order["inputs"].items()}
        secrets = {(name, key): environment[variable.encode()] for name, key, variable in order["secrets"]}
        self._masked += [*map(rewritten, self._masked), *secrets.values()]
        self._told: list[bytes] = []
        named = {name.decode(): value.decode(errors="replace") for name, value in environment.items() if name.isascii()}
        texts = {key: value.decode("latin-1") for key, value in secrets.items()}
        self._values = RequestValues({**values, **dict.fromkeys(order["absent"])}, named, texts)

    def run(self) -> int:
        """Do it; returns the process's end."""
        try:
            self._run()
        except Over as over:
            if str(over):
                self._tell(str(over))
            if over.definite and over.code:
                Path(self._order["definite"]).write_text(self._order["key"], encoding="ascii")
            return over.code
        return 0

    def cancel(self, *_: object) -> None:
        """As a signal's handler: nothing is sent from now on; of what was sent the end is awaited."""
        self._cancelled = True

    def _run(self) -> None:
        try:
            request = build(self._written, self._values, self._order["key"])
        except UnfitError as unfit:
            raise Over(ExitCode.INPUT_UNFIT, str(unfit)) from None
        first = self._sent(request)
        answer = self._judged(first) if first is not None else self._found(request)
        if first is not None and self._is_begun(answer):
            self._finish(self._followed(request, answer, self._written["poll"]), answer)
        else:
            self._finish(answer, None)

    def _is_begun(self, answer: WebhookResponse) -> bool:
        """Whether it says that a job goes on behind it."""
        poll = self._written.get("poll")
        return poll is not None and answer.status in (poll.get("status") or [202])

    # --- the request itself -----------------------------------------------------------------------------------------

    def _sent(self, request: WebhookRequest) -> WebhookResponse | None:
        """Its answer; None if it has left and none came, or none that says what became of it."""
        self._show_request(request)
        for number in range(TRIES):
            if self._cancelled:
                raise Over(ExitCode.CANCELLED, "was asked to end; nothing was sent")
            try:
                answer = send(self._way(request), request, self._resolver)
            except UnsentError as unsent:
                pause = FIRST_PAUSE_S * 2**number
                if not unsent.again or number == TRIES - 1 or self._left() < pause:
                    raise Over(unsent.end, str(unsent)) from None
                self._tell(f"nothing was sent: {unsent}; trying again in {pause:g} s")
                self._pause(pause)
            except ResponseLostError as lost:
                self._tell(f"sent, but {lost}")
                return None
            else:
                failed = (self._written.get("expect") or {}).get("failed") or ()
                if not self._is_success(answer) and is_open(answer.status, failed):
                    self._show_answer(answer)
                    self._tell("this answer leaves open what has become of the request")
                    self._open_status = answer.status
                    return None
                return answer
        raise AssertionError("the last try has ended above")

    _open_status = 0

    def _way(self, request: WebhookRequest) -> ServerAccess:
        limits = self._order["limits"]
        ca = (self._written.get("tls") or {}).get("ca", "")
        left = max(self._left(), 0.001)
        connect_s, answer_s = min(limits["connect"], left), min(limits["answer"], left)
        return ServerAccess(request.origin, self._order["allowed"], ca, connect_s, answer_s, left)

    def _is_success(self, answer: WebhookResponse) -> bool:
        """Whether it is one that is expected; one that has begun a job is, wherever it is written."""
        wanted = (self._written.get("expect") or {}).get("status")
        expected = answer.status in wanted if wanted else 200 <= answer.status < 300
        return expected or self._is_begun(answer)

    def _judged(self, answer: WebhookResponse) -> WebhookResponse:
        """An answer that is a success and whole."""
        if not self._is_success(answer):
            self._show_answer(answer)
            hint = "; redirects are not followed: write the address itself" if 300 <= answer.status < 400 else ""
            raise Over(of_status(answer.status), f"that is no success{hint}", definite=True)
        if answer.fault is not None:
            self._show_answer(answer)
            if self._is_begun(answer):
                self._wait_out(_FAULTS[answer.fault])
                raise Over(answer.fault)
            # Of one that was cut the rest can be had under the same key.
            raise Over(answer.fault, _FAULTS[answer.fault], definite=answer.fault is ExitCode.TOO_LARGE)
        return answer

    # --- after an answer that was lost ------------------------------------------------------------------------------

    def _found(self, request: WebhookRequest) -> WebhookResponse:
        """The answer of a `find` that says that it was carried out.

        Raises:
            Over: it never did, or there is none.
        """
        code = of_status(self._open_status) if self._open_status else ExitCode.ANSWER_LOST
        if self._order["idempotent"]:
            raise Over(code, "it may be sent again, under the same key")
        find = self._written.get("find")
        if not find:
            self._wait_out("it has no `find`")
            raise Over(code)
        try:
            question = asking(self._written, self._values, request)
        except UnfitError as unfit:
            self._wait_out(f"it cannot be looked for: {unfit}")
            raise Over(code) from None
        for answer in self._asked(question):
            if 200 <= answer.status < 300 and (not find.get("when") or self._says(find["when"], answer)):
                self._tell("found: it was carried out")
                return answer
        raise Over(code, "it was not found in all that time")

    def _wait_out(self, why: str) -> None:
        """Let the time pass in which a server may still carry out what was sent: nobody may clean up before."""
        if self._order["idempotent"]:
            self._tell(f"{why}; it may be sent again, under the same key")
            return
        self._tell(f"{why}; it may still be carried out: waiting {self._left():.0f} s, then it counts as failed")
        self._wait(self._left())

    # --- a long job -------------------------------------------------------------------------------------------------

    def _followed(self, request: WebhookRequest, first: WebhookResponse, poll: Mapping[str, Any]) -> WebhookResponse:
        """The answer by which the job is done.

        Raises:
            Over: it failed, or its end was not heard in time.
        """
        self._show_answer(first)
        try:
            question = following(self._written, request, self._where(first, poll))
        except (UnfitError, ValueError) as unfit:
            self._wait_out(str(unfit))
            raise Over(ExitCode.UNFIT) from None
        except Over as over:
            self._wait_out(str(over))
            raise Over(over.code) from None
        Path(self._order["location"]).write_text(question.url, encoding="utf-8")
        for answer in self._asked(question):
            if 400 <= answer.status < 500 and is_open(answer.status, ()) is False:
                raise Over(ExitCode.JOB_FAILED, "the job cannot be asked for any more", definite=True)
            if not 200 <= answer.status < 300:
                continue
            if poll.get("failed") and self._says(poll["failed"], answer):
                raise Over(ExitCode.JOB_FAILED, "the job has failed", definite=True)
            if self._says(poll["until"], answer):
                return answer
        raise Over(ExitCode.JOB_UNFINISHED, "the job has not ended in all that time")

    def _where(self, first: WebhookResponse, poll: Mapping[str, Any]) -> str:
        """The address at which a job is asked for.

        Raises:
            UnfitError: it names none.
            Over: it cannot be read.
        """
        location = self._one(poll["location"], first) if poll.get("location") else first.header("Location")
        if not location:
            raise UnfitError("it says nowhere where to ask for the job")
        return str(location)

    def _asked(self, question: WebhookRequest) -> Iterable[WebhookResponse]:
        """The whole answers to one question, asked again and again, ever less often, until the time is over."""
        self._show_request(question)
        pause = FIRST_PAUSE_S
        shown: tuple[int, bytes] | None = None
        while (left := self._left()) > FIRST_PAUSE_S:
            # However long the pause: it is asked until the end, with time left for the last answers.
            self._wait(min(pause, max(left - LAST_PAUSE_S, left / 2)))
            pause = min(pause * 2, LONGEST_PAUSE_S)
            try:
                answer = send(self._way(question), question, self._resolver)
            except UnsentError as unsent:
                self._tell(f"not asked: {unsent}")
                continue
            except ResponseLostError as lost:
                self._tell(f"asked, but {lost}")
                continue
            if (answer.status, answer.body) != shown:
                self._show_answer(answer)
                shown = (answer.status, answer.body)
            if answer.fault is None:
                yield answer
        # Until then a server may be at work: nobody may clean up before.
        self._wait(max(self._left(), 0))

    # --- what an answer holds ---------------------------------------------------------------------------------------

    def _finish(self, answer: WebhookResponse, before: WebhookResponse | None) -> None:
        """Take the outputs from the last answer, or from the one that began the job, and end well."""
        faults = []
        for output in self._order["outputs"]:
            try:
                value = self._value(output, answer)
            except UntakenError as untaken:
                raise self._of_no_use(untaken, answer) from None
            if value is None and before is not None:
                with contextlib.suppress(UntakenError):
                    value = self._value(output, before)
            if value is None:
                faults.append(f"the answer has nothing for output {output['name']}")
                continue
            if output["sensitive"]:
                self._masked.append(value)
            Path(output["path"]).write_bytes(value)
        self._show_answer(answer)
        if faults:
            raise Over(ExitCode.UNFIT, "; ".join(faults), definite=True)

    def _value(self, output: Mapping[str, Any], answer: WebhookResponse) -> bytes | None:
        """What an output takes from an answer; None if it has nothing for it.

        Raises:
            UntakenError: it cannot be taken.
        """
        if output.get("status"):
            return str(answer.status).encode()
        if output.get("header"):
            text = answer.header(output["header"])
            return None if text is None else text.encode("latin-1", "replace")
        query = output["query"]
        found = one(answer.body, query, self._order["steps"][query])
        return None if found is None else as_bytes(found, query)

    def _says(self, comparison: Mapping[str, Any], answer: WebhookResponse) -> bool:
        """Whether a comparison holds; what cannot be compared, a proxy's page say, tells nothing of the request."""
        try:
            return self._holds(comparison, answer)
        except Over as over:
            self._tell(f"that tells nothing: {over}")
            return False

    def _holds(self, comparison: Mapping[str, Any], answer: WebhookResponse) -> bool:
        found = self._one(comparison["path"], answer)
        return any(isinstance(found, bool) is isinstance(each, bool) and found == each for each in comparison["in"])

    def _one(self, query: str, answer: WebhookResponse) -> Any:
        """What a query finds; None if it is nothing.

        Raises:
            Over: there is no such value that could be taken.
        """
        try:
            return one(answer.body, query, self._order["steps"][query])
        except UntakenError as untaken:
            raise self._of_no_use(untaken, answer) from None

    def _of_no_use(self, untaken: UntakenError, answer: WebhookResponse) -> Over:
        if untaken.end is ExitCode.NOT_JSON:
            self._show_answer(answer)
        return Over(untaken.end, str(untaken), definite=True)

    # --- time, and what is told -------------------------------------------------------------------------------------

    def _left(self) -> float:
        return self._until - self._clock()

    def _wait(self, seconds: float) -> None:
        """In pieces: a signal is heard between them, and the clock is what counts."""
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            self._pause(min(left, 1.0))

    def _show_request(self, request: WebhookRequest) -> None:
        self._tell(f"{request.method} {request.url}")
        for name, value in request.headers:
            self._tell(f"  {name}: {value if name.lower() in request.shown else '***'}")
        if request.body is not None:
            self._show_body(request.body)

    def _show_answer(self, answer: WebhookResponse) -> None:
        sensitive = [output for output in self._order["outputs"] if output["sensitive"]]
        is_known = True
        try:
            self._told = [found for each in sensitive if (found := self._value(each, answer)) is not None]
        except UntakenError as untaken:  # what never was JSON holds none
            is_known = untaken.end is ExitCode.NOT_JSON and answer.fault is None
        self._tell(f"answered {answer.status} {answer.phrase}".rstrip())
        for name, value in answer.headers:
            if name.lower() in ("content-type", "location", "retry-after"):
                self._tell(f"  {name}: {value}")
        if answer.body and is_known:
            self._show_body(answer.body)
        elif answer.body:
            self._tell("  (not shown: it may hold a sensitive output, and cannot be read)")

    def _show_body(self, body: bytes) -> None:
        # Cut first, a value at the end would lose what it is known by.
        self._say(b"  " + self._safe(body)[:SHOWN_BYTES])

    def _tell(self, sentence: str) -> None:
        self._say(self._safe(sentence.encode(errors="replace")))

    def _safe(self, text: bytes) -> bytes:
        return overwritten(text, [*self._masked, *self._told])


_FAULTS = {
    ExitCode.TOO_LARGE: "the answer is larger than 1 MiB",
    ExitCode.CUT: "the answer was cut off",
    ExitCode.SLOW: "the answer did not come to its end in time (`timeouts.answer` of the webhook)",
}


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def main() -> None:
    """Send what the environment orders."""
    environment = dict(os.environb)
    sender = WebhookSender(json.loads(environment.pop(ORDER.encode())), environment, say=_print)
    signal.signal(signal.SIGTERM, sender.cancel)
    code = sender.run()
    # A resolver that never answers sits in a thread.
    os._exit(code)


if __name__ == "__main__":
    main()
