"""Default retries and time limits of steps."""

from __future__ import annotations

import msgspec

from dayfly.spec import plugin as written
from dayfly.spec.lifecycle import PRE_STOP_TRIES, LifecycleEvent, UnitRetry, UnitTimeouts
from dayfly.spec.scalars.duration import milliseconds
from dayfly.spec.steps import webhook

CREATE_TRIES = 3
UNLIMITED_TRIES = 0


def retry(given: written.Retry, event: LifecycleEvent) -> UnitRetry:
    """Return how often a step is tried: a create step once, or `CREATE_TRIES` times if it is idempotent."""
    backoff = {"backoff_ms": milliseconds(given.backoff)} if given.backoff else {}
    if event is LifecycleEvent.POST_STOP:
        return UnitRetry(idempotent=True, limit=UNLIMITED_TRIES, **backoff)
    if event is LifecycleEvent.PRE_STOP:
        return UnitRetry(idempotent=True, limit=PRE_STOP_TRIES, **backoff)
    tries = given.limit or (CREATE_TRIES if given.idempotent else 1)
    return UnitRetry(idempotent=bool(given.idempotent), limit=tries, **backoff)


def timeouts(given: written.Timeouts) -> UnitTimeouts:
    """Return the time limits of a step; those that it does not set have their defaults."""
    durations = {f"{field}_ms": getattr(given, field) for field in given.__struct_fields__}
    return UnitTimeouts(**{field: milliseconds(duration) for field, duration in durations.items() if duration})


def webhook_timeouts(timeouts: UnitTimeouts, step: written.Step) -> UnitTimeouts:
    """Return the time limits of a webhook. A sent request cannot be cancelled, so its grace period is its run time."""
    assert step.webhook is not None, "only a webhook sends"
    given = step.timeouts is not None and bool(step.timeouts.run)
    run_ms = timeouts.run_ms if given or step.webhook.poll is not None else webhook.RUN_MS
    return msgspec.structs.replace(timeouts, run_ms=run_ms, grace_ms=run_ms)
