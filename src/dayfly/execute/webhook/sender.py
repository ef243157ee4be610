"""The program that sends a webhook. It reads an order from its environment and logs to standard output.

A request is sent once. If no response is received, this program does not send it again. It polls `find` until the
request was carried out, or waits until the server can no longer carry it out. An idempotent request fails at once, and
the next attempt sends it again with the same key. Only if the server names a time in `Retry-After`, this program itself
sends it again then.
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

if __name__ == "__main__":  # run as a file, so `sys.path` lacks the folder of the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from dayfly.execute.log_masks import mask
from dayfly.execute.webhook.exit_codes import ORDER, TOO_MANY_REQUESTS, ExitCode, code_of_status, is_inconclusive
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
    build,
    find_request,
    job_request,
    normalize_json,
)
from dayfly.execute.webhook.response_values import ExtractionError, query_value, to_bytes

MAX_TRIES = 4
# Statuses whose `Retry-After` is obeyed.
RETRY_STATUSES = frozenset({TOO_MANY_REQUESTS, 503})
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
LAST_PAUSE_S = 2.0
SHOWN_BYTES = 64 * 1024


class SenderExit(Exception):  # noqa: N818 - not always an error
    """End of the program with an exit code. A `definite` end follows from a response that decides on the request."""

    def __init__(self, code: int, sentence: str = "", *, definite: bool = False) -> None:
        super().__init__(sentence)
        self.code = code
        self.definite = definite


class WebhookSender:
    """One attempt. `order` is from `render`, and `environment` has the values."""

    def __init__(
        self,
        order: Mapping[str, Any],
        environment: Mapping[bytes, bytes],
        *,
        resolver: Resolve = resolve,
        write_line: Callable[[bytes], None],
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._written: Mapping[str, Any] = order["request"]
        self._resolver = resolver
        self._write_line = write_line
        self._pause = pause
        self._clock = clock
        self._cancelled = False
        self._masks = [environment[name.encode()] for name in order["sensitive"] if name.encode() in environment]
        self._until: float = clock() + order["seconds"]
        values = {name: environment.get(variable.encode()) for name, variable in order["inputs"].items()}
        secrets = {(name, key): environment[variable.encode()] for name, key, variable in order["secrets"]}
        self._masks += [*map(normalize_json, self._masks), *secrets.values()]
        self._answer_masks: list[bytes] = []
        named = {name.decode(): value.decode(errors="replace") for name, value in environment.items() if name.isascii()}
        texts = {key: value.decode("latin-1") for key, value in secrets.items()}
        self._values = RequestValues({**values, **dict.fromkeys(order["absent"])}, named, texts)

    def run(self) -> int:
        """Send the webhook and return the exit code."""
        try:
            self._run()
        except SenderExit as end:
            if str(end):
                self._log(str(end))
            if end.definite and end.code:
                Path(self._order["definite"]).write_text(self._order["key"], encoding="ascii")
            return end.code
        return 0

    def cancel(self, *_: object) -> None:
        """Stop before the request is sent. If it was sent, continue until its end. (A signal handler.)"""
        self._cancelled = True

    def _run(self) -> None:
        try:
            request = build(self._written, self._values, self._order["key"])
        except UnfitError as unfit:
            raise SenderExit(ExitCode.INPUT_UNFIT, str(unfit)) from None
        first = self._send(request)
        answer = self._check(first) if first is not None else self._find(request)
        if first is not None and self._starts_job(answer):
            self._finish(self._follow_job(request, answer, self._written["poll"]), answer)
        else:
            self._finish(answer, None)

    def _starts_job(self, answer: WebhookResponse) -> bool:
        """Return whether the response starts a job that is polled."""
        poll = self._written.get("poll")
        return poll is not None and answer.status in (poll.get("status") or [202])

    # --- the request itself -----------------------------------------------------------------------------------------

    def _send(self, request: WebhookRequest) -> WebhookResponse | None:
        """Send the request and return its response; None if there is none, or an inconclusive one."""
        self._show_request(request)
        for number in range(MAX_TRIES):
            try:
                answer = self._send_once(request)
            except SenderExit as unsent:
                if not self._inconclusive_status:
                    raise
                self._log(f"not sent again: {unsent}")  # the server has received it before
                return None
            if answer is None or self._is_conclusive(answer):
                return answer
            self._inconclusive_status = answer.status
            if number == MAX_TRIES - 1 or not self._wait_to_retry(answer, FIRST_PAUSE_S * 2**number):
                return None
        raise AssertionError("the last try returns")

    def _send_once(self, request: WebhookRequest) -> WebhookResponse | None:
        """Send the request and return its response; None if there is none.

        Raises:
            SenderExit: Nothing was sent.
        """
        for number in range(MAX_TRIES):
            if self._cancelled:
                raise SenderExit(ExitCode.CANCELLED, "cancelled; nothing was sent")
            try:
                return send(self._access(request), request, self._resolver)
            except UnsentError as unsent:
                pause = FIRST_PAUSE_S * 2**number
                if not unsent.can_retry or number == MAX_TRIES - 1 or self._seconds_left() < pause:
                    raise SenderExit(unsent.end, str(unsent)) from None
                self._log(f"nothing was sent: {unsent}; retrying in {pause:g} s")
                self._pause(pause)
            except ResponseLostError as lost:
                self._log(f"sent, but {lost}")
                self._inconclusive_status = 0
                return None
        raise AssertionError("the last try returns or raises")

    _inconclusive_status = 0

    def _is_conclusive(self, answer: WebhookResponse) -> bool:
        """Return whether the response decides on the request; otherwise log it."""
        failed = (self._written.get("expect") or {}).get("failed") or ()
        if self._is_success(answer) or not is_inconclusive(answer.status, failed):
            return True
        self._show_answer(answer)
        self._log("with this status, the server may have carried out the request")
        return False

    def _wait_to_retry(self, answer: WebhookResponse, least: float) -> bool:
        """Wait as long as the server requires, if the request may be sent again. Return whether to send it now."""
        after = _retry_after_s(answer)
        if not self._order["idempotent"] or after is None:
            return False
        self._log(f"the server requires a pause of {after:g} s before the request is sent again")
        self._wait(max(after, least), until_cancelled=True)
        return not self._cancelled and self._seconds_left() > LAST_PAUSE_S

    def _access(self, request: WebhookRequest) -> ServerAccess:
        limits = self._order["limits"]
        ca = (self._written.get("tls") or {}).get("ca", "")
        left = max(self._seconds_left(), 0.001)
        connect_s, answer_s = min(limits["connect"], left), min(limits["answer"], left)
        return ServerAccess(request.origin, self._order["allowed"], ca, connect_s, answer_s, left)

    def _is_success(self, answer: WebhookResponse) -> bool:
        """Return whether the status is expected. A response that starts a job is always expected."""
        wanted = (self._written.get("expect") or {}).get("status")
        expected = answer.status in wanted if wanted else 200 <= answer.status < 300
        return expected or self._starts_job(answer)

    def _check(self, answer: WebhookResponse) -> WebhookResponse:
        """Return the response if it is successful and complete; otherwise exit."""
        if not self._is_success(answer):
            self._show_answer(answer)
            hint = "; redirects are not followed: use the final address" if 300 <= answer.status < 400 else ""
            raise SenderExit(code_of_status(answer.status), f"the status is not a success{hint}", definite=True)
        if answer.fault is not None:
            self._show_answer(answer)
            if self._starts_job(answer):
                self._wait_out(_FAULTS[answer.fault])
                raise SenderExit(answer.fault)
            # A truncated response can be requested again with the same key.
            raise SenderExit(answer.fault, _FAULTS[answer.fault], definite=answer.fault is ExitCode.TOO_LARGE)
        return answer

    # --- after a lost response --------------------------------------------------------------------------------------

    def _find(self, request: WebhookRequest) -> WebhookResponse:
        """Return the response of `find` that proves that the request was carried out.

        Raises:
            SenderExit: There is no `find`, or no proof in time.
        """
        code = code_of_status(self._inconclusive_status) if self._inconclusive_status else ExitCode.ANSWER_LOST
        if self._order["idempotent"]:
            raise SenderExit(code, "the request may be sent again with the same key")
        find = self._written.get("find")
        if not find:
            self._wait_out("the webhook has no `find`")
            raise SenderExit(code)
        try:
            question = find_request(self._written, self._values, request)
        except UnfitError as unfit:
            self._wait_out(f"cannot send `find`: {unfit}")
            raise SenderExit(code) from None
        for answer in self._poll(question):
            if 200 <= answer.status < 300 and (not find.get("when") or self._compare(find["when"], answer)):
                self._log("found: the request was carried out")
                return answer
        raise SenderExit(code, "`find` did not find it in time")

    def _wait_out(self, why: str) -> None:
        """Wait until the server can no longer carry out the request, because cleanup must not start before."""
        if self._order["idempotent"]:
            self._log(f"{why}; the request may be sent again with the same key")
            return
        self._log(
            f"{why}; it may still be carried out: waiting {self._seconds_left():.0f} s before it counts as failed"
        )
        self._wait(self._seconds_left())

    # --- a long job -------------------------------------------------------------------------------------------------

    def _follow_job(self, request: WebhookRequest, first: WebhookResponse, poll: Mapping[str, Any]) -> WebhookResponse:
        """Poll the job and return the response that shows its success.

        Raises:
            SenderExit: The job failed, or its end was not known in time.
        """
        self._show_answer(first)
        try:
            question = job_request(self._written, request, self._job_location(first, poll))
        except (UnfitError, ValueError) as unfit:
            self._wait_out(str(unfit))
            raise SenderExit(ExitCode.UNFIT) from None
        except SenderExit as end:
            self._wait_out(str(end))
            raise SenderExit(end.code) from None
        Path(self._order["location"]).write_text(question.url, encoding="utf-8")
        for answer in self._poll(question):
            if 400 <= answer.status < 500 and not is_inconclusive(answer.status, ()):
                raise SenderExit(ExitCode.JOB_FAILED, "the job can no longer be polled", definite=True)
            if not 200 <= answer.status < 300:
                continue
            if poll.get("failed") and self._compare(poll["failed"], answer):
                raise SenderExit(ExitCode.JOB_FAILED, "the job has failed", definite=True)
            if self._compare(poll["until"], answer):
                return answer
        raise SenderExit(ExitCode.JOB_UNFINISHED, "the job has not ended in time")

    def _job_location(self, first: WebhookResponse, poll: Mapping[str, Any]) -> str:
        """Return the location of the job.

        Raises:
            UnfitError: The response has no location.
            SenderExit: The response cannot be read.
        """
        location = self._query(poll["location"], first) if poll.get("location") else first.header("Location")
        if not location:
            raise UnfitError("the response has no location of the job")
        return str(location)

    def _poll(self, question: WebhookRequest) -> Iterable[WebhookResponse]:
        """Send the GET request repeatedly with back-off until the time limit; yield the complete responses."""
        self._show_request(question)
        pause, required = FIRST_PAUSE_S, 0.0
        shown: tuple[int, bytes] | None = None
        while (left := self._seconds_left()) > FIRST_PAUSE_S:
            # The last requests are sent shortly before the time limit, whatever the pause is.
            self._wait(min(max(pause, required), max(left - LAST_PAUSE_S, left / 2)))
            pause, required = min(pause * 2, MAX_PAUSE_S), 0.0
            try:
                answer = send(self._access(question), question, self._resolver)
            except UnsentError as unsent:
                self._log(f"not sent: {unsent}")
                continue
            except ResponseLostError as lost:
                self._log(f"sent, but {lost}")
                continue
            required = _retry_after_s(answer) or 0.0
            if (answer.status, answer.body) != shown:
                self._show_answer(answer)
                shown = (answer.status, answer.body)
            if answer.fault is None:
                yield answer
        # The server may still be working until the time limit, and cleanup must not start before.
        self._wait(max(self._seconds_left(), 0))

    # --- values of a response ---------------------------------------------------------------------------------------

    def _finish(self, answer: WebhookResponse, before: WebhookResponse | None) -> None:
        """Write the outputs from the last response, or from the response that started the job."""
        faults = []
        for output in self._order["outputs"]:
            try:
                value = self._extract(output, answer)
            except ExtractionError as untaken:
                raise self._invalid(untaken, answer) from None
            if value is None and before is not None:
                with contextlib.suppress(ExtractionError):
                    value = self._extract(output, before)
            if value is None:
                faults.append(f"the response has no value for output {output['name']}")
                continue
            if output["sensitive"]:
                self._masks.append(value)
            Path(output["path"]).write_bytes(value)
        self._show_answer(answer)
        if faults:
            raise SenderExit(ExitCode.UNFIT, "; ".join(faults), definite=True)

    def _extract(self, output: Mapping[str, Any], answer: WebhookResponse) -> bytes | None:
        """Return the value of an output in a response; None if there is none.

        Raises:
            ExtractionError: The value cannot be read.
        """
        if output.get("status"):
            return str(answer.status).encode()
        if output.get("header"):
            text = answer.header(output["header"])
            return None if text is None else text.encode("latin-1", "replace")
        query = output["query"]
        found = query_value(answer.body, query, self._order["steps"][query])
        return None if found is None else to_bytes(found, query)

    def _compare(self, comparison: Mapping[str, Any], answer: WebhookResponse) -> bool:
        """Return whether a comparison is true. It is false for a response of a proxy, which cannot be compared."""
        try:
            return self._is_true(comparison, answer)
        except SenderExit as end:
            self._log(f"ignored, because it cannot be compared: {end}")
            return False

    def _is_true(self, comparison: Mapping[str, Any], answer: WebhookResponse) -> bool:
        found = self._query(comparison["path"], answer)
        return any(isinstance(found, bool) is isinstance(each, bool) and found == each for each in comparison["in"])

    def _query(self, query: str, answer: WebhookResponse) -> Any:
        """Return the value that a query finds; None if there is none.

        Raises:
            SenderExit: The value cannot be read.
        """
        try:
            return query_value(answer.body, query, self._order["steps"][query])
        except ExtractionError as untaken:
            raise self._invalid(untaken, answer) from None

    def _invalid(self, untaken: ExtractionError, answer: WebhookResponse) -> SenderExit:
        if untaken.end is ExitCode.NOT_JSON:
            self._show_answer(answer)
        return SenderExit(untaken.end, str(untaken), definite=True)

    # --- time and log -----------------------------------------------------------------------------------------------

    def _seconds_left(self) -> float:
        return self._until - self._clock()

    def _wait(self, seconds: float, *, until_cancelled: bool = False) -> None:
        """Wait in short pauses, so that signals are handled, for `seconds` and at most until the time limit."""
        end = self._clock() + min(seconds, max(self._seconds_left(), 0))
        while (left := end - self._clock()) > 0 and not (until_cancelled and self._cancelled):
            self._pause(min(left, 1.0))

    def _show_request(self, request: WebhookRequest) -> None:
        self._log(f"{request.method} {request.url}")
        for name, value in request.headers:
            self._log(f"  {name}: {value if name.lower() in request.shown else '***'}")
        if request.body is not None:
            self._show_body(request.body)

    def _show_answer(self, answer: WebhookResponse) -> None:
        sensitive = [output for output in self._order["outputs"] if output["sensitive"]]
        is_known = True
        try:
            self._answer_masks = [found for each in sensitive if (found := self._extract(each, answer)) is not None]
        except ExtractionError as untaken:  # a body that is not JSON contains no output
            is_known = untaken.end is ExitCode.NOT_JSON and answer.fault is None
        self._log(f"response {answer.status} {answer.phrase}".rstrip())
        for name, value in answer.headers:
            if name.lower() in ("content-type", "location", "retry-after"):
                self._log(f"  {name}: {value}")
        if answer.body and is_known:
            self._show_body(answer.body)
        elif answer.body:
            self._log("  (not shown: it may contain a sensitive output that cannot be masked)")

    def _show_body(self, body: bytes) -> None:
        # Mask before truncation, because a truncated value would not be recognized.
        self._write_line(b"  " + self._mask(body)[:SHOWN_BYTES])

    def _log(self, sentence: str) -> None:
        self._write_line(self._mask(sentence.encode(errors="replace")))

    def _mask(self, text: bytes) -> bytes:
        return mask(text, [*self._masks, *self._answer_masks])


_FAULTS = {
    ExitCode.TOO_LARGE: "the response is larger than 1 MiB",
    ExitCode.CUT: "the response was truncated",
    ExitCode.SLOW: "the response was not complete in time (`timeouts.answer` of the webhook)",
}


def _retry_after_s(answer: WebhookResponse) -> float | None:
    """Return the seconds for which the server requires a pause; None if it requires none."""
    return answer.retry_after_s(time.time()) if answer.status in RETRY_STATUSES else None


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def main() -> None:
    """Send the webhook of the order in the environment."""
    environment = dict(os.environb)
    sender = WebhookSender(json.loads(environment.pop(ORDER.encode())), environment, write_line=_print)
    signal.signal(signal.SIGTERM, sender.cancel)
    code = sender.run()
    # Do not wait for the resolver's thread, which may be blocked.
    os._exit(code)


if __name__ == "__main__":
    main()
