"""Runs for benchmarks: documents as from `compile`, offered to an embedded host without a server."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dayfly.cli import installed
from dayfly.embedded.host import EmbeddedHost
from dayfly.execute.process.attempt_storage import open_storage
from dayfly.link.server_end import Link
from dayfly.link.wire import Offer
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import As, Exec, Lifecycle, Ref, Target, Unit, UnitInput, UnitOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path


@asynccontextmanager
async def host(home: Path, *, parallel: int = 16, webhooks: Sequence[str] = ()) -> AsyncIterator[EmbeddedHost]:
    """Provide an embedded host in a separate home, which is deleted at the end. It takes no turns before its `start`.

    It sends its reports to a listener, as to a server. `webhooks` are allowed servers (`HOST:PORT`).
    """
    opened = await EmbeddedHost.open(home, runner=installed.find_runner(), parallel=parallel, webhooks=list(webhooks))
    Link(opened.end)
    try:
        yield opened
    finally:
        await opened.close()
        # The attempt folders of this home may be elsewhere, in memory.
        shutil.rmtree(open_storage(home).work, ignore_errors=True)


def chain(uid: str, script: str, length: int, output: str = "") -> Offer:
    """Return a run of one resource whose create steps run in sequence, each reading the output of the one before.

    `output` is the path of the file that the script writes. Without it, the chain has one step, which reads a constant.
    """
    assert output or length == 1, "steps are chained by their outputs"
    outputs = (UnitOutput(name="o", path=output),) if output else ()
    steps = [_step("s0", script, (), outputs)]
    for number in range(1, length):
        read = UnitInput(name="o", from_=Ref(unit=f"s{number - 1}", output="o"), as_=As(env="BEFORE"))
        steps.append(_step(f"s{number}", script, (read,), outputs))
    target = Target(kind="Sandbox", name=uid, uid=uid)
    documents = (Lifecycle(target=target, resource="db", pre_start=tuple(steps)), Lifecycle(target=target))
    return Offer(uid=uid, name=uid, target=target, documents=documents)


def _step(name: str, script: str, inputs: tuple[UnitInput, ...], outputs: tuple[UnitOutput, ...]) -> Unit:
    return Unit(name=name, kind="exec", exec=Exec(script=script), inputs=inputs, outputs=outputs)


async def all_ready(opened: EmbeddedHost, offers: list[Offer]) -> None:
    """Wait until every run is ready. It polls rarely, so that only the host is measured.

    The last run is checked first: when it is ready, most others are. So the costs of their reports come after the
    measured time.

    Raises:
        RuntimeError: a run failed, so the measurement is not valid.
    """
    for offer in reversed(offers):
        while not _is_ready(opened, offer.uid):
            seen, version = -1, opened.version(offer.uid)
            while version != seen:
                await asyncio.sleep(0.05)
                seen, version = version, opened.version(offer.uid)


def _is_ready(opened: EmbeddedHost, uid: str) -> bool:
    report = opened.report(uid)
    if report is None or report.reason == Reason.RESOURCE_FAILED:
        raise RuntimeError(f"{uid}: {report.message if report else 'is unknown'}")
    return report.ready


def times(opened: EmbeddedHost, offers: list[Offer]) -> tuple[int, int]:
    """Return the times of the first claim and the last record in Unix milliseconds, from the ledger's history."""
    written = [entry for offer in offers for entry in opened.history(offer.uid)]
    claims = [entry.at for entry in written if entry.move == "Claim"]
    records = [entry.at for entry in written if entry.move == "Record"]
    return min(claims), max(records)
