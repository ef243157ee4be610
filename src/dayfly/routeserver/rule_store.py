"""The current routing rules, and subscriptions to their changes.

A slow subscriber does not block others. Each subscription has only the set of rules that have changed since its last
read. So it receives the newest version of each rule, and its memory is limited by the number of rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

from dayfly.spec.routing.rules import index_by_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.spec.routing.rules import Query, RoutingRule, RuleId

Op = Literal["ADD", "REMOVE", "REPLACE"]


class RuleStore:
    """All rules. `is_complete` is false until they are known for the first time."""

    def __init__(self) -> None:
        self.is_complete = False
        self._rules: dict[RuleId, RoutingRule] = {}
        self._subscriptions: set[Subscription] = set()
        self._completed = asyncio.Event()

    def find(self, query: Query) -> list[RoutingRule]:
        """Return the rules that match a query."""
        return [rule for rule in self._rules.values() if query.matches(rule)]

    def update(self, changed: Mapping[RuleId, RoutingRule | None]) -> None:
        """Store changed rules, and remove those that are None."""
        ids = {id_ for id_, rule in changed.items() if self._rules.get(id_) != rule}
        for id_ in ids:
            if (rule := changed[id_]) is None:
                del self._rules[id_]
            else:
                self._rules[id_] = rule
        for subscription in self._subscriptions if ids else ():
            subscription.notify(ids)

    def replace(self, found: Iterable[RoutingRule]) -> None:
        """Replace all rules."""
        now = index_by_id(found)
        self.update({**dict.fromkeys(self._rules), **now})
        self.complete()

    def complete(self) -> None:
        """Mark the store as complete: all current rules are stored."""
        self.is_complete = True
        self._completed.set()

    async def wait_complete(self) -> None:
        """Wait until the store is complete for the first time."""
        await self._completed.wait()

    @contextlib.contextmanager
    def subscribe(self, query: Query) -> Iterator[Subscription]:
        """Subscribe to the rules that match a query. The first changes are all current rules."""
        subscription = Subscription(self._rules, query)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    @property
    def subscriptions(self) -> int:
        """Number of active subscriptions."""
        return len(self._subscriptions)


class Subscription:
    """The changes for one subscriber since its last read."""

    def __init__(self, rules: Mapping[RuleId, RoutingRule], query: Query) -> None:
        self._rules, self._query = rules, query
        self._sent: dict[RuleId, RoutingRule] = {}
        self._changed = set(rules)
        self._event = asyncio.Event()

    def notify(self, changed: set[RuleId]) -> None:
        """Add changed rules."""
        self._changed |= changed
        self._event.set()

    def take_changes(self) -> list[tuple[Op, RoutingRule]]:
        """Return the changes since the last call, removals first."""
        self._event.clear()
        removed: list[tuple[Op, RoutingRule]] = []
        added: list[tuple[Op, RoutingRule]] = []
        for id_ in self._changed:
            before, now = self._sent.get(id_), self._rules.get(id_)
            if now is not None and not self._query.matches(now):
                now = None
            if before == now:
                continue
            if now is None:
                removed.append(("REMOVE", self._sent.pop(id_)))
            else:
                added.append(("ADD" if before is None else "REPLACE", now))
                self._sent[id_] = now
        self._changed = set()
        return removed + added

    async def wait(self) -> None:
        """Wait until a rule may have changed."""
        await self._event.wait()
