"""Webhook units, and their sender in this process with a resolver and clock of the test."""

import json
from types import SimpleNamespace

from dayfly.execute.process.render import OrderContext
from dayfly.execute.webhook.exit_codes import ORDER
from dayfly.execute.webhook.http_exchange import resolve
from dayfly.execute.webhook.read import explain_exit_code
from dayfly.execute.webhook.render import SenderSetup, as_exec
from dayfly.execute.webhook.sender import WebhookSender
from dayfly.execute.work_order import built_in
from dayfly.spec.lifecycle import As, Unit, UnitInput, UnitOutput, UnitRetry, UnitTimeouts, WebhookUnit
from dayfly.spec.run import NEVER


def unit(url, method="POST", *, inputs=None, outputs=(), idempotent=False, run_ms=60_000, name="make", **request):
    """Return a unit of kind webhook. `outputs` has fields of `UnitOutput` by name."""
    return Unit(
        name=name,
        kind="webhook",
        inputs=tuple(
            UnitInput(name=key, value=value, as_=As(env=f"DAYFLY_INPUT_{key.upper()}"))
            for key, value in (inputs or {}).items()
        ),
        outputs=tuple(UnitOutput(name=key, **where) for key, where in dict(outputs).items()),
        retry=UnitRetry(idempotent=idempotent, limit=3 if idempotent else 1, backoff_ms=50),
        timeouts=UnitTimeouts(run_ms=run_ms, grace_ms=run_ms),
        webhook=WebhookUnit(request={"method": method, "url": url, **request}, env={"DAYFLY_SANDBOX_NAME": "box"}),
    )


class Sent(SimpleNamespace):
    """The result of a sender: `code`, `reason`, `log`, and `outputs` by name."""


def ordered(folder, made, *, allowed=(), record=NEVER, sensitive=(), secrets=None):
    """Return the exec unit and the environment of its sender."""
    place = SenderSetup(command=("python",), folder=str(folder), allowed=frozenset(allowed))
    absent = [item.name for item in made.inputs if item.value is None]
    running = as_exec(made, place, run="u", name="db/make", record=record, absent=absent, sensitive=sensitive)
    inputs = {item.name: item.value for item in made.inputs}
    attempt = OrderContext(
        run="u", resource="db", unit="db/make", number=1, inputs=inputs, complete=True, isolation="none"
    )
    told = built_in(running, attempt)
    environment = {name.encode(): value.encode() for name, value in {**told, **(secrets or {})}.items()}
    return running, environment | {item.as_.env.encode(): (item.value or "").encode() for item in made.inputs}


def send(folder, made, *, resolver=resolve, cancel=None, pauses=None, **how):
    """Run the unit's sender to its end. Its pauses take no time and are appended to `pauses`.

    `cancel` is the number of pauses after which it is cancelled.
    """
    running, environment = ordered(folder, made, **how)
    lines = []
    order = json.loads(environment.pop(ORDER.encode()))
    environment[b"ODD\xff"] = b"whose name is no text: a shell may hand on such a one"
    order["sensitive"].append("DAYFLY_INPUT_GONE")  # an absent input has no variable
    pauses = [] if pauses is None else pauses

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == cancel:
            sender.cancel()

    sender = WebhookSender(
        order, environment, write_line=lines.append, resolver=resolver, pause=pause, clock=lambda: sum(pauses)
    )
    if cancel == 0:
        sender.cancel()
    code = sender.run()
    log = b"\n".join(lines).decode()
    outputs = {}
    for output in running.outputs:
        path = folder / output.path.rpartition("/")[2]
        if path.exists():
            outputs[output.name] = path.read_text()
            path.unlink()
    return Sent(
        code=code,
        reason=explain_exit_code(code, made)[0] if code else "",
        log=log,
        outputs=outputs,
        order=order,
        pauses=pauses,
    )
