"""Faults of webhooks, between Dayfly and the server of the webhook.

A proxy with a separate address for each step (`ScenarioBuilder.proxy_urls`) applies the fault to the first request.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.plugin import Retry, Step, Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

# The time limit of a request without a response, and of a job.
_REQUEST_TIMEOUT, _JOB_TIMEOUT = "5s", "20s"
SOON = "1s"


class WebhookFault(StrEnum):
    """A fault of the first request of a step, with the name of its scenario."""

    LOST = "the response to {} is lost"
    CUT = "the request of {} is lost"
    REFUSED = "the first request of {} gets status 500"
    TWICE = "the request of {} arrives twice"
    BEFORE = "the sandbox is deleted before {} is carried out"
    AFTER = "the sandbox is deleted before {} is answered"

    def scenario_name(self, step: str) -> str:
        """Return the name of the scenario for a step."""
        return self.value.format(step)


def applicable_faults(*, is_repeated: bool, creates: bool) -> Iterator[WebhookFault]:
    """Yield the faults that apply to a step.

    A request may arrive twice only if the step may be repeated: its server must recognise the key.
    """
    yield from (WebhookFault.LOST, WebhookFault.CUT, WebhookFault.REFUSED)
    if is_repeated:
        yield WebhookFault.TWICE
    if creates:
        yield from (WebhookFault.BEFORE, WebhookFault.AFTER)


def use_proxy(step: Step, way: str) -> Step:
    """Return the step with the URL of its proxy and short timeouts."""
    assert step.webhook is not None, "the step is a webhook"
    timeout = _JOB_TIMEOUT if step.webhook.poll else _REQUEST_TIMEOUT
    return msgspec.structs.replace(
        step,
        webhook=msgspec.structs.replace(step.webhook, url=way, tls=None),
        retry=msgspec.structs.replace(step.retry or Retry(), backoff=SOON),
        timeouts=msgspec.structs.replace(step.timeouts or Timeouts(), run=timeout),
    )
