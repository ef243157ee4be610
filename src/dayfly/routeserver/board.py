"""The rules as they are known now, and who wants to hear of changes.

Nobody is kept waiting by somebody slow: each watcher has but the set of what has changed since it looked, so it is told
the newest of each rule, however often that changed, and costs at most as much memory as there are rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

from dayfly.spec.routing.rules import by_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.spec.routing.rules import Query, RoutingRule, RuleId

Op = Literal["ADD", "REMOVE", "REPLACE"]


class Board:
    """All rules. `known` is False until they have been told for the first time: none is not the same as not known."""

    def __init__(self) -> None:
        self.known = False
        self._rules: dict[RuleId, RoutingRule] = {}
        self._watchers: set[RuleListener] = set()
        self._told = asyncio.Event()

    def rules(self, query: Query) -> list[RoutingRule]:
        """Those that are asked for."""
        return [rule for rule in self._rules.values() if query.matches(rule)]

    def put(self, changed: Mapping[RuleId, RoutingRule | None]) -> None:
        """These are so now; None for one that holds no more."""
        news = {id_ for id_, rule in changed.items() if self._rules.get(id_) != rule}
        for id_ in news:
            if (rule := changed[id_]) is None:
                del self._rules[id_]
            else:
                self._rules[id_] = rule
        for watcher in self._watchers if news else ():
            watcher.note(news)

    def replace(self, found: Iterable[RoutingRule]) -> None:
        """These are all."""
        now = by_id(found)
        self.put({**dict.fromkeys(self._rules), **now})
        self.complete()

    def complete(self) -> None:
        """All that holds has been put."""
        self.known = True
        self._told.set()

    async def wait_known(self) -> None:
        """Until they have been told for the first time."""
        await self._told.wait()

    @contextlib.contextmanager
    def watch(self, query: Query) -> Iterator[RuleListener]:
        """Hear of those that are asked for, beginning with all of them."""
        watcher = RuleListener(self._rules, query)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    @property
    def watchers(self) -> int:
        """How many listen."""
        return len(self._watchers)


class RuleListener:
    """What one listener has been told, and what is new to it."""

    def __init__(self, rules: Mapping[RuleId, RoutingRule], query: Query) -> None:
        self._rules, self._query = rules, query
        self._told: dict[RuleId, RoutingRule] = {}
        self._changed = set(rules)
        self._news = asyncio.Event()

    def note(self, changed: set[RuleId]) -> None:
        """These are not as they were."""
        self._changed |= changed
        self._news.set()

    def changes(self) -> list[tuple[Op, RoutingRule]]:
        """What is new since the last time; what holds no more comes first."""
        self._news.clear()
        gone: list[tuple[Op, RoutingRule]] = []
        come: list[tuple[Op, RoutingRule]] = []
        for id_ in self._changed:
            before, now = self._told.get(id_), self._rules.get(id_)
            if now is not None and not self._query.matches(now):
                now = None
            if before == now:
                continue
            if now is None:
                gone.append(("REMOVE", self._told.pop(id_)))
            else:
                come.append(("ADD" if before is None else "REPLACE", now))
                self._told[id_] = now
        self._changed = set()
        return gone + come

    async def wait(self) -> None:
        """Until something may have changed."""
        await self._news.wait()
