"""Controllers of one process: shared caches, owners told of what they own, one lease, Events, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from dayfly.kube import auth, errors
from dayfly.kube.cache import Cache, Change, Reflector
from dayfly.kube.client import Client
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.lease import Elector, standing
from dayfly.kube.objects import HasMeta, Key, Resource
from dayfly.kube.ownership import ForeignError, controller_of
from dayfly.kube.status import Speaker
from dayfly.kube.transport import HttpTransport
from dayfly.kube.watches import Watches
from dayfly.lib.queue import Backoff, WorkQueue
from dayfly.lib.tasks import first

T = TypeVar("T", bound=HasMeta)
O = TypeVar("O", bound=HasMeta)  # noqa: E741 - another kind

RESYNC_S = 600.0
GRACE_S = 10.0
"""How long work that is under way may take after `Manager.stop`."""

log = logging.getLogger(__name__)


class Runnable(NamedTuple):
    """Work that a manager runs while this process leads."""

    run: Callable[[], Coroutine[Any, Any, None]]
    """Work until closed. Called again each time this process starts to lead, and cancelled when it stops leading."""
    close: Callable[[], None]
    """Start no more work, so that `run` ends after what is under way."""
    stand_by: Callable[[], None]
    """Keep no keys: another process works. Called before the first election and after each lost lease."""
    take_over: Callable[[], None]
    """Accept keys again and look at all objects: another process may have worked before."""


class Manager:
    """What the controllers of a process share. `watch` and `control` what is needed, then `run`."""

    def __init__(
        self,
        client: Client,
        name: str,
        identity: str,
        *,
        namespace: str = "",
        elector: Elector | None = None,
        watches: Watches | None = None,
        seed: int | None = None,
    ) -> None:
        """Args:
        client: Shared by all.
        name: Who says the Events, a qualified name such as `example.org/websites`.
        identity: This very process.
        namespace: The only one that is watched; all of them if empty.
        elector: Who of several processes works. A lease only saves work: without one all may work at once.
        watches: Reflectors of the caller's own, which run from the beginning to the end; its own if None.
        seed: Has all jitter repeat.
        """
        self.client = client
        self.events = Recorder(client, name, identity)
        self._namespace = namespace
        self._elector = elector
        self._seed = seed
        self._watches = watches or Watches(client, seed=seed)
        self._caches: dict[tuple[str, str, str, tuple[str, ...], type], tuple[Cache[Any], Reflector[Any]]] = {}
        self._runnables: list[Runnable] = []
        self._running = False
        self._stopping = asyncio.Event()

    def watch(self, resource: Resource[T], *, labels: str = "", index: tuple[str, ...] = ()) -> Cache[T]:
        """The cache of a kind, one for all who ask for the same. `labels` selects, `index` are labels to look up by.

        What is asked for while the manager runs is watched from then on, and nobody waits for it: see `trouble`.
        """
        namespace = self._namespace if resource.namespaced else ""
        about = resource.path(namespace), labels, resource.kind, index, resource.model
        if about not in self._caches:
            cache: Cache[T] = Cache(index)
            follow = self._watches.follow_also if self._running else self._watches.follow
            reflector = follow(resource, cache, namespace=namespace, labels=labels)
            self._caches[about] = cache, reflector
        return self._caches[about][0]

    def trouble(self, cache: Cache[Any]) -> errors.ApiError | None:
        """What keeps a cache from being current, if anything does."""
        return next(reflector.trouble for each, reflector in self._caches.values() if each is cache)

    def synced(self, cache: Cache[Any]) -> bool:
        """Whether a cache has been whole once; what is missing from it before may be there."""
        return next(reflector.synced for each, reflector in self._caches.values() if each is cache)

    def control(
        self,
        resource: Resource[T],
        reconcile: Callable[[T], Awaitable[float | None]],
        *,
        owns: Iterable[Cache[Any]] = (),
        workers: int = 4,
        resync: float = RESYNC_S,
        backoff: Backoff | None = None,
        gone: Callable[[Key], None] = lambda _: None,
    ) -> Controlled[T]:
        """Have each object of a kind reconciled: when it changes, when what it owns does, and every `resync` seconds.

        Args:
            resource: The kind.
            reconcile: Takes an object as the cache has it one step further; returns seconds after which to look again,
                or None. What it raises is tried again after the key's own back-off.
            owns: Caches of what it makes; a change there is one of the controlling owner.
            workers: Objects that are worked on at once.
            resync: Seconds.
            backoff: Of one object whose `reconcile` fails.
            gone: Called once an object is not there any more, for what was remembered of it.
        """
        cache = self.watch(resource)
        queue: WorkQueue[Key] = WorkQueue(backoff, owner=lambda key: key.namespace, seed=self._seed)

        async def look(key: Key) -> float | None:
            item = cache.get(key.name, key.namespace)
            if item is None:
                gone(key)
                return None
            return await reconcile(item)

        every = Resync(resync, lambda: [Key.of(item) for item in cache])
        expected = (ForeignError,)
        controller = Controller(resource.kind, look, queue, workers=workers, expected=expected, resync=every)

        def changed(change: Change[T]) -> None:
            queue.add(change.key)
            if queue.paused and change.gone is not None:
                gone(change.key)

        def stand_by() -> None:
            for key in queue.pause():
                if cache.get(key.name, key.namespace) is None:
                    gone(key)

        cache.listen(changed)
        # After `resume` the controller's `Resync` adds all objects.
        self.add(Runnable(controller.run, queue.close, stand_by, queue.resume))
        controlled = Controlled(resource, cache, queue)
        for each in owns:
            controlled.owns(each)
        return controlled

    def speaker(self, *, warnings: Collection[str] = ()) -> Speaker:
        """Who writes statuses, with Events for conditions that changed; it warns of those with these reasons."""
        return Speaker(self.client, self.events, warnings=warnings)

    def add(self, runnable: Runnable) -> None:
        """Run this too, beside the controllers of `control`."""
        self._runnables.append(runnable)

    @property
    def age(self) -> float:
        """Seconds since the server last proved the most backward cache current: for a health check."""
        return self._watches.age

    @property
    def leading(self) -> bool:
        """Whether this process works; always true without an elector."""
        return self._elector is None or self._elector.leading

    def stop(self) -> None:
        """End in order: what is under way is finished, nothing more is begun."""
        self._stopping.set()

    async def run(self) -> None:
        """Until stopped or cancelled."""
        self._running = True
        if self._elector is not None:
            self._stand_by()
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._watches.watch()), tasks.create_task(self.events.run())]
                await first(self._watches.wait_synced(), self._stopping.wait())
                if not self._stopping.is_set():
                    working = tasks.create_task(self._work_while_leading())
                    background.append(working)
                    await self._stopping.wait()
                    self._close()
                    await asyncio.wait([working], timeout=GRACE_S)
                for task in background:
                    task.cancel()
        finally:
            self._close()

    async def _work_while_leading(self) -> None:
        """Work while this process leads. The caches stay current in between."""
        if (elector := self._elector) is None:
            await self._work()
            return
        async with standing(elector):
            while not self._stopping.is_set():
                await first(elector.led(), self._stopping.wait())
                if not self._stopping.is_set():
                    log.info("%s leads", elector.identity)
                    self._take_over()
                    await first(self._work(), elector.led(False))
                    self._stand_by()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self._runnables:
                tasks.create_task(each.run())

    def _stand_by(self) -> None:
        for each in self._runnables:
            each.stand_by()

    def _take_over(self) -> None:
        for each in self._runnables:
            each.take_over()

    def _close(self) -> None:
        for each in self._runnables:
            each.close()


class Controlled(Generic[T]):
    """A kind under control: its cache, and what else leads to its objects."""

    def __init__(self, resource: Resource[T], cache: Cache[T], queue: WorkQueue[Key]) -> None:
        self.cache = cache
        self._resource = resource
        self._queue = queue

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Have an object looked at, now or in so many seconds."""
        self._queue.add(key, after=after)

    def owns(self, cache: Cache[Any]) -> None:
        """Whatever becomes of objects there is news of their controlling owners."""
        self.follows(cache, self._owners)

    def follows(self, cache: Cache[O], keys: Callable[[O], Iterable[Key]]) -> None:
        """Whatever becomes of objects there is news of those that `keys` names, before the change and after it."""

        def heard(change: Change[O]) -> None:
            for item in (change.old, change.new):
                for key in keys(item) if item is not None else ():
                    self._queue.add(key)

        cache.listen(heard)

    def _owners(self, item: HasMeta) -> Iterator[Key]:
        owner, ours = controller_of(item), self._resource
        # Another version of the API has the same objects.
        if owner and owner.kind == ours.kind and owner.api_version.rpartition("/")[0] == ours.group:
            yield Key(item.metadata.namespace if ours.namespaced else "", owner.name)


@contextlib.asynccontextmanager
async def connect(kubeconfig: Path | None = None, context: str | None = None) -> AsyncIterator[Client]:
    """A client with the credentials of a kubeconfig, or of the pod that we are in; closed at the end.

    Raises:
        auth.CredentialsError: there are none.
    """
    client = Client(HttpTransport(await auth.load(kubeconfig, context)))
    try:
        yield client
    finally:
        await client.close()


async def run_to_signal(manager: Manager) -> None:
    """Run until the process is asked to end (SIGTERM or Ctrl-C)."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, manager.stop)
    try:
        await manager.run()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
