"""Runs the controllers of one process: shared caches, owner lookups, one lease, Events, and an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from dayfly.kube import auth, errors
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.lease import Elector, run_election
from dayfly.kube.objects import ApiResource, HasMeta, Key
from dayfly.kube.ownership import NameConflictError, controller_of
from dayfly.kube.reflector import Reflector
from dayfly.kube.status import StatusWriter
from dayfly.kube.transport import HttpTransport
from dayfly.kube.watches import Watches
from dayfly.lib.queue import Backoff, WorkQueue
from dayfly.lib.tasks import run_until_first

T = TypeVar("T", bound=HasMeta)
O = TypeVar("O", bound=HasMeta)  # noqa: E741 - a second kind

RESYNC_S = 600.0
GRACE_S = 10.0
"""Seconds after `Manager.stop` in which running `reconcile` calls may finish."""

log = logging.getLogger(__name__)


class Runnable(NamedTuple):
    """Work that a manager runs while this process leads."""

    run: Callable[[], Coroutine[Any, Any, None]]
    """Work until closed. Called again each time this process starts to lead, and cancelled when it stops leading."""
    close: Callable[[], None]
    """Start no more work, so that `run` ends after the work in progress."""
    stand_by: Callable[[], None]
    """Drop all keys: another process is the leader. Called before the first election and after each lost lease."""
    take_over: Callable[[], None]
    """Accept keys again and reconcile all objects: another process may have worked before."""


class Manager:
    """The shared parts of the controllers of a process. Call `watch` and `control`, then `run`."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        identity: str,
        *,
        namespace: str = "",
        elector: Elector | None = None,
        watches: Watches | None = None,
        seed: int | None = None,
    ) -> None:
        """Args:
        client: The client that all controllers share.
        name: The reporting controller of Events, a qualified name such as `example.org/websites`.
        identity: The name of this process.
        namespace: The only namespace to watch; empty for all.
        elector: Elects the process that works. It only saves work: without one, all processes may work at once.
        watches: Reflectors that the caller runs; if None, the manager has its own.
        seed: The seed of all jitter, for tests.
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

    def watch(self, resource: ApiResource[T], *, labels: str = "", index: tuple[str, ...] = ()) -> Cache[T]:
        """Return the cache of a kind; callers with the same arguments share it.

        A cache that is requested while the manager runs is filled from then on, and `run` does not wait for it: see
        `watch_error`.

        Args:
            resource: The kind.
            labels: A label selector.
            index: Label keys for `Cache.labelled`.
        """
        namespace = self._namespace if resource.namespaced else ""
        about = resource.path(namespace), labels, resource.kind, index, resource.model
        if about not in self._caches:
            cache: Cache[T] = Cache(index)
            follow = self._watches.follow_also if self._running else self._watches.follow
            reflector = follow(resource, cache, namespace=namespace, labels=labels)
            self._caches[about] = cache, reflector
        return self._caches[about][0]

    def watch_error(self, cache: Cache[Any]) -> errors.ApiError | None:
        """Return the error that keeps a cache from being current; None if there is none."""
        return next(reflector.error for each, reflector in self._caches.values() if each is cache)

    def is_synced(self, cache: Cache[Any]) -> bool:
        """Return whether a cache has been complete once. Before, objects that it lacks may exist."""
        return next(reflector.is_synced for each, reflector in self._caches.values() if each is cache)

    def control(
        self,
        resource: ApiResource[T],
        reconcile: Callable[[T], Awaitable[float | None]],
        *,
        owns: Iterable[Cache[Any]] = (),
        workers: int = 4,
        resync: float = RESYNC_S,
        backoff: Backoff | None = None,
        gone: Callable[[Key], None] = lambda _: None,
    ) -> Controlled[T]:
        """Reconcile each object of a kind: after a change of it or of an object it owns, and every `resync` seconds.

        Args:
            resource: The kind.
            reconcile: Called with an object from the cache. Returns the seconds until the next call, or None. After an
                exception it is called again, with a back-off for each object.
            owns: Caches of the objects that it creates; their changes reconcile the controlling owner.
            workers: The number of objects that are reconciled concurrently.
            resync: The interval in seconds in which all objects are reconciled.
            backoff: The back-off after exceptions.
            gone: Called after an object is deleted, to drop what is remembered of it.
        """
        cache = self.watch(resource)
        queue: WorkQueue[Key] = WorkQueue(backoff, owner=lambda key: key.namespace, seed=self._seed)

        async def reconcile_key(key: Key) -> float | None:
            item = cache.get(key.name, key.namespace)
            if item is None:
                gone(key)
                return None
            return await reconcile(item)

        every = Resync(resync, lambda: [Key.from_object(item) for item in cache])
        expected = (NameConflictError,)
        controller = Controller(resource.kind, reconcile_key, queue, workers=workers, expected=expected, resync=every)

        def changed(change: ObjectChange[T]) -> None:
            queue.add(change.key)
            if queue.is_paused and change.deleted is not None:
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

    def status_writer(self, *, warnings: Collection[str] = ()) -> StatusWriter:
        """Return a writer of statuses, with Events for changed conditions; `warnings` are the reasons of Warning
        Events.
        """
        return StatusWriter(self.client, self.events, warnings=warnings)

    def add(self, runnable: Runnable) -> None:
        """Run a further `Runnable` beside the controllers of `control`."""
        self._runnables.append(runnable)

    @property
    def age(self) -> float:
        """Seconds since the server last confirmed the least current cache, for a health check."""
        return self._watches.age

    @property
    def is_leading(self) -> bool:
        """Whether this process works; always true without an elector."""
        return self._elector is None or self._elector.is_leading

    def stop(self) -> None:
        """Stop in order: running `reconcile` calls finish, and no others start."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop` or cancellation."""
        self._running = True
        if self._elector is not None:
            self._stand_by()
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._watches.watch()), tasks.create_task(self.events.run())]
                await run_until_first(self._watches.wait_synced(), self._stopping.wait())
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
        """Work while this process is the leader. The caches stay current in between."""
        if (elector := self._elector) is None:
            await self._work()
            return
        async with run_election(elector):
            while not self._stopping.is_set():
                await run_until_first(elector.wait_leading(), self._stopping.wait())
                if not self._stopping.is_set():
                    log.info("%s leads", elector.identity)
                    self._take_over()
                    await run_until_first(self._work(), elector.wait_leading(False))
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
    """A controlled kind: its cache, and further triggers of `reconcile`."""

    def __init__(self, resource: ApiResource[T], cache: Cache[T], queue: WorkQueue[Key]) -> None:
        self.cache = cache
        self._resource = resource
        self._queue = queue

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Reconcile an object, now or after a number of seconds."""
        self._queue.add(key, after=after)

    def owns(self, cache: Cache[Any]) -> None:
        """Reconcile the controlling owner after each change of an object in the cache."""
        self.follows(cache, self._owners)

    def follows(self, cache: Cache[O], keys: Callable[[O], Iterable[Key]]) -> None:
        """After each change in the cache, reconcile the objects that `keys` returns for the old and the new state."""

        def on_change(change: ObjectChange[O]) -> None:
            for item in (change.old, change.new):
                for key in keys(item) if item is not None else ():
                    self._queue.add(key)

        cache.listen(on_change)

    def _owners(self, item: HasMeta) -> Iterator[Key]:
        owner, ours = controller_of(item), self._resource
        # The group is compared without the version: other versions of an API have the same objects.
        if owner and owner.kind == ours.kind and owner.api_version.rpartition("/")[0] == ours.group:
            yield Key(item.metadata.namespace if ours.namespaced else "", owner.name)


@contextlib.asynccontextmanager
async def connect(kubeconfig: Path | None = None, context: str | None = None) -> AsyncIterator[KubeClient]:
    """Yield a client with the credentials of a kubeconfig or of this pod; it is closed at the end.

    Raises:
        auth.CredentialsError: there are no usable credentials.
    """
    client = KubeClient(HttpTransport(await auth.load(kubeconfig, context)))
    try:
        yield client
    finally:
        await client.close()


async def run_to_signal(manager: Manager) -> None:
    """Run the manager until SIGTERM or SIGINT."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, manager.stop)
    try:
        await manager.run()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
