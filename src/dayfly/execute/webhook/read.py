"""The meaning of the sender's exit code. Pure."""

from collections.abc import Mapping

from dayfly.execute.webhook.exit_codes import TOO_MANY_REQUESTS, ExitCode, is_inconclusive, status_of
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, Sealed, Unclear
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Result, Run

_UNSENT = {
    ExitCode.NAME_NOT_FOUND: "the server's name was not found; check the host in `url`, and DNS where the step runs",
    ExitCode.CONNECTION_REFUSED: "the connection was refused; check the port in `url`, and that the server is running",
    ExitCode.CONNECTION_TIMED_OUT: "no connection in time; check firewalls, network policies and `timeouts.connect`",
    ExitCode.UNREACHABLE: "the server's address is unreachable; check the host in `url`, and the network",
    ExitCode.TLS_FAILED: "the TLS handshake failed; check that the server speaks TLS at the port in `url`",
    ExitCode.CERTIFICATE_UNTRUSTED: "the certificate is not from a trusted authority; set `tls.ca` to that authority",
    ExitCode.CERTIFICATE_EXPIRED: "the certificate has expired or is not valid yet; renew it, or correct the clock",
    ExitCode.CERTIFICATE_MISMATCH: "the certificate is for another host; change the host in `url`, or the certificate",
    ExitCode.CA_UNREADABLE: "`tls.ca` is not a certificate in PEM form; correct it",
}

_MEANING = {
    ExitCode.NOT_SENT: (Reason.NOT_SENT, "nothing was sent: the server could not be reached"),
    **{end: (Reason.NOT_SENT, f"nothing was sent: {why}") for end, why in _UNSENT.items()},
    ExitCode.ADDRESS_REFUSED: (Reason.ADDRESS_REFUSED, "webhooks may not be sent to its address"),
    ExitCode.ANSWER_LOST: (Reason.RESPONSE_LOST, "the request was sent, but no response was received"),
    ExitCode.TOO_LARGE: (Reason.RESPONSE_TOO_LARGE, "the response is larger than 1 MiB"),
    ExitCode.NOT_JSON: (Reason.RESPONSE_NOT_JSON, "the response is not JSON"),
    ExitCode.CUT: (Reason.RESPONSE_TRUNCATED, "the response was truncated"),
    ExitCode.SLOW: (Reason.RESPONSE_TIMEOUT, "the response was not complete in time"),
    ExitCode.UNFIT: (Reason.RESPONSE_INVALID, "the response lacks a value for an output or `poll`"),
    ExitCode.JOB_FAILED: (Reason.JOB_FAILED, "the job that it started has failed"),
    ExitCode.JOB_UNFINISHED: (Reason.JOB_UNFINISHED, "the job that it started did not end in time"),
    ExitCode.INPUT_UNFIT: (Reason.INPUT_INVALID, "the value of an input is not allowed at its place in the request"),
    ExitCode.CANCELLED: (Reason.CANCELLED, "was cancelled before the request was sent"),
    ExitCode.ODD_STATUS: (Reason.UNEXPECTED_STATUS, "the server responded with an unusual status"),
}


def explain_exit_code(code: int, unit: Unit) -> tuple[str, str]:
    """Return the reason and message of an exit code other than 0."""
    if code in _MEANING:
        return _MEANING[ExitCode(code)]
    status = status_of(code)
    if not status:
        return Reason.EXIT_CODE, f"exit code {code}"
    written = unit.webhook.request if unit.webhook else {}
    named = f"{status} (too many requests)" if status == TOO_MANY_REQUESTS else str(status)
    if is_inconclusive(status, (written.get("expect") or {}).get("failed") or ()):
        return Reason.RESPONSE_LOST, f"the server responded {named}, and may have carried out the request"
    if 300 <= status < 400:
        return Reason.REDIRECTED, f"the server responded {status}; redirects are not followed"
    return Reason.UNEXPECTED_STATUS, f"the server responded {named}"


# Reasons that prove that no part of the request was sent.
UNSENT = frozenset({Reason.NOT_SENT, Reason.ADDRESS_REFUSED, Reason.INPUT_INVALID, Reason.CANCELLED})
# Reasons of a sender that was killed before it reported a result.
_KILLED = frozenset({Reason.EXIT_CODE, Reason.SIGNAL, Reason.OOM_KILLED, Reason.RESULT_LOST, Reason.NO_RECORD})


def mark_doubtful(plan: Plan, run: Run, facts: Mapping[AttemptKey, Fact], now: int) -> dict[AttemptKey, Fact]:
    """Replace the end of each killed sender by `Unclear` until its time limit; return all facts.

    Until then, a server may carry out its request, so cleanup must not start. Delete steps and idempotent create steps
    need no such delay: they are sent again with the same key. `now` is unix milliseconds.
    """
    ends = {key: fact.result for key, fact in facts.items() if isinstance(fact, (Ended, Sealed))}
    doubts = {
        key: doubt for key, result in ends.items() if (doubt := _unclear_fact(plan, run, key, result, now)) is not None
    }
    return {**facts, **doubts}


def _unclear_fact(plan: Plan, run: Run, key: AttemptKey, result: Result, now: int) -> Unclear | None:
    step, record = plan.steps.get(key[0]), run.unit(key[0])
    if step is None or step.unit.kind != Kind.WEBHOOK or not step.creates or step.unit.retry.idempotent:
        return None
    if record.attempt != key[1] or record.state not in ALIVE:
        return None
    over = (result.started_at or record.claimed_at) + step.unit.timeouts.run_ms
    if result.outcome == "succeeded" or result.reason not in _KILLED or now >= over:
        return None
    message = f"its sender was killed before the response ({result.message}); the request may still be carried out"
    return Unclear(since=result.ended_at, reason=Reason.RESPONSE_LOST, message=message, dead_by=over)
