"""What goes wrong with a webhook: not in a script, but between Dayfly and the server that it asks.

Somebody stands between the two, at an address of their own for each step (`Maker.ways`), and does with the first
request that comes what a life wants.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.plugin import Retry, Step, Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long a request may be in doubt: nobody answers it later.
_DOUBT, _DOUBT_OF_A_JOB = "5s", "20s"
SOON = "1s"


class WebhookFault(StrEnum):
    """What becomes of the first request of a step."""

    LOST = "the answer to {} is lost"
    CUT = "the request of {} is lost"
    REFUSED = "{} is answered 500 at first"
    TWICE = "the request of {} comes twice"
    BEFORE = "it is deleted before {} is carried out"
    AFTER = "it is deleted before {} is answered"

    def of(self, step: str) -> str:
        """The name of such a life."""
        return self.value.format(step)


def troubles(*, repeats: bool, creates: bool) -> Iterator[WebhookFault]:
    """Those of one step.

    A request may come twice if its step may: a server that knows its key carries it out once.
    """
    yield from (WebhookFault.LOST, WebhookFault.CUT, WebhookFault.REFUSED)
    if repeats:
        yield WebhookFault.TWICE
    if creates:
        yield from (WebhookFault.BEFORE, WebhookFault.AFTER)


def led(step: Step, way: str) -> Step:
    """The step, whose requests go to somebody else first; what is in doubt is settled soon."""
    assert step.webhook is not None, "asked of webhooks alone"
    doubt = _DOUBT_OF_A_JOB if step.webhook.poll else _DOUBT
    return msgspec.structs.replace(
        step,
        webhook=msgspec.structs.replace(step.webhook, url=way, tls=None),
        retry=msgspec.structs.replace(step.retry or Retry(), backoff=SOON),
        timeouts=msgspec.structs.replace(step.timeouts or Timeouts(), run=doubt),
    )
