"""What the end of a sender means. Pure."""

from dayfly.execute.webhook.ends import End, is_open, status_of
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Unit

_MEANING = {
    End.NOT_SENT: (Reason.NOT_SENT, "nothing was sent: the server could not be reached"),
    End.ADDRESS_REFUSED: (Reason.ADDRESS_REFUSED, "its address is not one that webhooks may be sent to"),
    End.ANSWER_LOST: (Reason.ANSWER_LOST, "it was sent, and no answer came"),
    End.TOO_LARGE: (Reason.ANSWER_TOO_LARGE, "the answer is larger than 1 MiB"),
    End.NOT_JSON: (Reason.ANSWER_NOT_JSON, "the answer is not JSON"),
    End.CUT: (Reason.ANSWER_CUT, "the answer was cut off"),
    End.SLOW: (Reason.ANSWER_SLOW, "the answer did not come to its end in time"),
    End.UNFIT: (Reason.ANSWER_UNFIT, "the answer lacks what an output or `poll` takes from it"),
    End.JOB_FAILED: (Reason.JOB_FAILED, "the job that it began has failed"),
    End.JOB_UNFINISHED: (Reason.JOB_UNFINISHED, "the job that it began did not end in time"),
    End.INPUT_UNFIT: (Reason.INPUT_UNFIT, "an input cannot stand where the request has it"),
    End.CANCELLED: (Reason.CANCELLED, "was asked to end before anything was sent"),
    End.ODD_STATUS: (Reason.UNEXPECTED_STATUS, "the server answered with an unusual status"),
}


def meaning(code: int, unit: Unit) -> tuple[str, str]:
    """Reason and sentence of an exit code other than 0."""
    if code in _MEANING:
        return _MEANING[End(code)]
    status = status_of(code)
    if not status:
        return Reason.EXIT_CODE, f"exit code {code}"
    written = unit.webhook.request if unit.webhook else {}
    if is_open(status, (written.get("expect") or {}).get("failed") or ()):
        return Reason.ANSWER_LOST, f"the server answered {status}, which leaves open what has become of the request"
    if 300 <= status < 400:
        return Reason.REDIRECTED, f"the server answered {status}; redirects are not followed"
    return Reason.UNEXPECTED_STATUS, f"the server answered {status}"
