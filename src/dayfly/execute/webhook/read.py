"""What the end of a sender means. Pure."""

from collections.abc import Mapping

from dayfly.execute.webhook.exit_codes import ExitCode, is_open, status_of
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
    ExitCode.ADDRESS_REFUSED: (Reason.ADDRESS_REFUSED, "its address is not one that webhooks may be sent to"),
    ExitCode.ANSWER_LOST: (Reason.RESPONSE_LOST, "it was sent, and no answer came"),
    ExitCode.TOO_LARGE: (Reason.RESPONSE_TOO_LARGE, "the answer is larger than 1 MiB"),
    ExitCode.NOT_JSON: (Reason.RESPONSE_NOT_JSON, "the answer is not JSON"),
    ExitCode.CUT: (Reason.RESPONSE_TRUNCATED, "the answer was cut off"),
    ExitCode.SLOW: (Reason.RESPONSE_TIMEOUT, "the answer did not come to its end in time"),
    ExitCode.UNFIT: (Reason.RESPONSE_INVALID, "the answer lacks what an output or `poll` takes from it"),
    ExitCode.JOB_FAILED: (Reason.JOB_FAILED, "the job that it began has failed"),
    ExitCode.JOB_UNFINISHED: (Reason.JOB_UNFINISHED, "the job that it began did not end in time"),
    ExitCode.INPUT_UNFIT: (Reason.INPUT_INVALID, "an input cannot stand where the request has it"),
    ExitCode.CANCELLED: (Reason.CANCELLED, "was asked to end before anything was sent"),
    ExitCode.ODD_STATUS: (Reason.UNEXPECTED_STATUS, "the server answered with an unusual status"),
}


def meaning(code: int, unit: Unit) -> tuple[str, str]:
    """Reason and sentence of an exit code other than 0."""
    if code in _MEANING:
        return _MEANING[ExitCode(code)]
    status = status_of(code)
    if not status:
        return Reason.EXIT_CODE, f"exit code {code}"
    written = unit.webhook.request if unit.webhook else {}
    if is_open(status, (written.get("expect") or {}).get("failed") or ()):
        return Reason.RESPONSE_LOST, f"the server answered {status}, which leaves open what has become of the request"
    if 300 <= status < 400:
        return Reason.REDIRECTED, f"the server answered {status}; redirects are not followed"
    return Reason.UNEXPECTED_STATUS, f"the server answered {status}"


# The reasons of a sender that proves that nothing of its request has left.
UNSENT = frozenset({Reason.NOT_SENT, Reason.ADDRESS_REFUSED, Reason.INPUT_INVALID, Reason.CANCELLED})
# The ends of a sender that did not live to say what has become of its request.
_UNTOLD = frozenset({Reason.EXIT_CODE, Reason.SIGNAL, Reason.OOM_KILLED, Reason.RESULT_LOST, Reason.NO_RECORD})


def in_doubt(plan: Plan, run: Run, facts: Mapping[AttemptKey, Fact], now: int) -> dict[AttemptKey, Fact]:
    """The same facts; but what a killed sender may have sent is in doubt until its time to run is over.

    Until then a server may carry it out, so nothing is to be cleaned up. What is sent again under the same key (each
    delete step, and a create step that may be) needs no such pause. `now` is unix milliseconds.
    """
    ends = {key: fact.result for key, fact in facts.items() if isinstance(fact, (Ended, Sealed))}
    doubts = {key: doubt for key, result in ends.items() if (doubt := _doubt(plan, run, key, result, now)) is not None}
    return {**facts, **doubts}


def _doubt(plan: Plan, run: Run, key: AttemptKey, result: Result, now: int) -> Unclear | None:
    step, record = plan.steps.get(key[0]), run.unit(key[0])
    if step is None or step.unit.kind != Kind.WEBHOOK or not step.creates or step.unit.retry.idempotent:
        return None
    if record.attempt != key[1] or record.state not in ALIVE:
        return None
    over = (result.started_at or record.claimed_at) + step.unit.timeouts.run_ms
    if result.outcome == "succeeded" or result.reason not in _UNTOLD or now >= over:
        return None
    message = f"its sender did not live to hear the answer ({result.message}); what it sent may still be carried out"
    return Unclear(since=result.ended_at, reason=Reason.RESPONSE_LOST, message=message, dead_by=over)
