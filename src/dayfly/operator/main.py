"""The operator's process: caches, workers over runs and sandboxes, and their end."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from dayfly.execute.turn import turn
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import Key
from dayfly.kube.queue import work
from dayfly.operator.cluster import Cluster, unix_ms
from dayfly.operator.gather import PlanLostError
from dayfly.operator.grants import Runner
from dayfly.operator.lifecycles import Lifecycles
from dayfly.operator.sandboxes import Sandboxes
from dayfly.operator.speak import Speaker

log = logging.getLogger(__name__)

WORKERS = 16


class Operator:
    """All controllers over one cluster. Several operators may run at once."""

    def __init__(
        self,
        client: Client,
        *,
        runner: Runner,
        now: Callable[[], int] = unix_ms,
        seed: int | None = None,
    ) -> None:
        self.cluster = Cluster(client, now=now, seed=seed)
        self._lifecycles = Lifecycles(self.cluster, runner=runner)
        self._sandboxes = Sandboxes(self.cluster)
        self._speaker = Speaker(self.cluster)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.cluster.watch())
                await self.cluster.wait_synced()
                tasks.create_task(self._lifecycles.sweeper.run())
                for _ in range(WORKERS):
                    tasks.create_task(work(self.cluster.queue, self._take_turn))
                    tasks.create_task(work(self.cluster.wishes, self._tend))
        finally:
            self.cluster.close()
            await self._lifecycles.close()

    async def _take_turn(self, run: str) -> None:
        try:
            decision = await turn(run, self._lifecycles)
            if decision is not None and (after := self._lifecycles.again(run, decision.wake_at)):
                self.cluster.queue.add(run, after=after)
            if (scene := self._lifecycles.last(run)) is not None:
                await self._speaker.run(scene)
        except errors.ApiError as error:
            log.warning("run %s: %s", run, error)
            self.cluster.queue.retry(run)
        except PlanLostError as error:
            log.error("run %s is frozen: %s", run, error)  # noqa: TRY400 - the sentence is all there is to say
            self.cluster.queue.retry(run)
        except Exception:
            # A defect of ours in one run must not stop the others; it stays visible and is tried again.
            log.exception("turn of run %s failed", run)
            self.cluster.queue.retry(run)
        else:
            self.cluster.queue.forget(run)

    async def _tend(self, key: Key) -> None:
        try:
            why = await self._sandboxes.tend(key)
            seen = self.cluster.sandboxes.get(key.name, key.namespace)
            if why is not None and seen is not None:
                await self._speaker.waiting(seen, why)
        except errors.ApiError as error:
            log.warning("sandbox %s: %s", key, error)
            self.cluster.wishes.retry(key)
        except Exception:
            log.exception("sandbox %s failed", key)
            self.cluster.wishes.retry(key)
        else:
            self.cluster.wishes.forget(key)


async def operate(client: Client, *, runner: Runner, stop: asyncio.Event) -> None:
    """Run an operator until `stop` is set."""
    operator = asyncio.create_task(Operator(client, runner=runner).run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({operator, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (operator, stopped):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await operator
