"""What stood against the last try of making a unit's pod. Memory only: after a restart it is tried, and said, again."""

from dayfly.plan.world import AttemptKey, Fact, NeverRan, Objection
from dayfly.spec.run import Run

AGAIN_S = 5.0


class Refusals:
    """An `Objection` may pass and is tried again; `NeverRan` is for good and uses the attempt up."""

    def __init__(self) -> None:
        self._said: dict[str, dict[AttemptKey, Objection | NeverRan]] = {}

    def put(self, run: Run, key: AttemptKey, said: Objection | NeverRan) -> None:
        """Note what was said of one attempt."""
        self._said.setdefault(run.uid, {})[key] = said

    def drop(self, run: Run, key: AttemptKey) -> None:
        """It went well."""
        self._said.get(run.uid, {}).pop(key, None)

    def forget(self, run: str) -> None:
        """The run is over."""
        self._said.pop(run, None)

    def again_at(self, run: str) -> int:
        """When the next objected unit is to be tried again, in unix milliseconds; 0 if there is none."""
        said = self._said.get(run, {}).values()
        return min((_again(each) for each in said if isinstance(each, Objection)), default=0)

    def of(self, run: Run, now: int) -> tuple[dict[str, Objection], dict[AttemptKey, Fact]]:
        """What stands in the way of units at this moment, and attempts that will never be."""
        objections: dict[str, Objection] = {}
        facts: dict[AttemptKey, Fact] = {}
        here = self._said.get(run.uid, {})
        for (name, attempt), said in list(here.items()):
            passed = isinstance(said, Objection) and not said.since <= now < _again(said)  # a clock may be set back
            if run.unit(name).attempt >= attempt or passed:
                del here[name, attempt]
            elif isinstance(said, NeverRan):
                facts[name, attempt] = said
            else:
                objections[name] = said
        return objections, facts


def _again(said: Objection) -> int:
    return said.since + round(AGAIN_S * 1000)
