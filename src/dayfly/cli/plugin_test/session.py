"""`dayfly plugin test`: runs the scenarios of a plugin on a bench and prints the results."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dayfly.cli.local.child import Interrupted
from dayfly.cli.output import show
from dayfly.cli.plugin_test.workers import run_all
from dayfly.client.errors import DayflyError, Exit
from dayfly.plan.leaks.listing import parse_listing
from dayfly.testing import (
    Fault,
    Outcome,
    Scenario,
    ScenarioResult,
    SkippedScenario,
    as_json,
    as_junit,
    as_line,
    judge,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dayfly.cli.plugin_test.workers import StopRequest
    from dayfly.spec.plugin import Plugin


class Selection(NamedTuple):
    """The scenarios to run. The first scenario, which has no fault, is always run.

    Attributes:
        only: Texts of which the name of a scenario must contain one; empty for all scenarios.
        skip: Texts that the name must not contain.
        keep_going: Whether to continue if the plugin does not work in the first scenario.
        fail_fast: Whether to stop after the first finding.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    keep_going: bool = False
    fail_fast: bool = False

    def selects(self, name: str) -> bool:
        """Return whether a scenario is selected by its name."""
        return (not self.only or any(text in name for text in self.only)) and not any(
            text in name for text in self.skip
        )

    def stops_after(self, result: ScenarioResult, *, is_first: bool) -> bool:
        """Return whether the test ends after a scenario, because of its finding."""
        if result.finding is None:
            return False
        # The plugin or its inventory does not work even without a fault.
        is_broken = is_first and result.finding.fault in (Fault.NOT_CREATED, Fault.INVENTORY_EMPTY)
        return self.fail_fast or (is_broken and not self.keep_going)


def find_failed_attempt(units: Iterable[tuple[str, str, int]]) -> tuple[str, int] | None:
    """Return the last failed attempt as the ID of its unit and its number; None if there is none.

    Args:
        units: The ID, state and number of the latest attempt of each unit. The attempt of a running unit has not
            failed, but the one before has.
    """
    found = list(units)
    for state, later in (("retrying", 0), ("failed", 0), ("running", 1)):
        for unit, now, attempt in found:
            if now == state and attempt > later:
                return unit, attempt - later
    return None


class InventoryError(Exception):
    """The inventory script of a plugin could not run or failed, or its list is invalid."""


def listed_names(step: str, output: bytes) -> list[str]:
    """Return the names in the output of an inventory script.

    Raises:
        InventoryError: The list is invalid or incomplete.
    """
    listing = parse_listing(output)
    if listing.error:
        raise InventoryError(f"the list of the inventory {step} cannot be read: {listing.error}")
    return [thing.name for thing in listing.items]


class Bench(Protocol):
    """The place where one worker runs scenarios: this machine or a cluster."""

    def undisturbed_scenario(self, params: Mapping[str, str]) -> Scenario:
        """Return the scenario without a fault. One worker runs it before the others start."""

    def fault_scenarios(self, params: Mapping[str, str]) -> Iterable[Scenario | SkippedScenario]:
        """Return the other scenarios, which are built from the durations of the steps without a fault.

        All workers have the same scenarios in the same order, but each worker runs only its own.
        """

    def create(self, scenario: Scenario) -> Any:
        """Create a sandbox for a scenario. The result is passed to the other methods as `box`."""

    def wait_until_done(self, scenario: Scenario, box: Any) -> Outcome:
        """Wait until the sandbox has the state in which the scenario deletes it."""

    def delete(self, scenario: Scenario, box: Any) -> tuple[str, tuple[str, ...]] | None:
        """Delete a sandbox and wait. Return None once it is gone.

        After a timeout, abandon the sandbox and return the reason and the end of a log.
        """

    def inventory(self, scenario: Scenario, box: Any) -> tuple[str, ...] | None:
        """Run the plugin's inventory for the resource of a sandbox; return a line for each item that exists.

        Return None if the plugin has no inventory, or if it failed.
        """

    def complete(self, scenario: Scenario, outcome: Outcome) -> Outcome:
        """Return the outcome with the data that only the bench has, and reset that data for the next scenario.

        It is the number of starts of each step, the error of the inventory, or why the fault did not occur.
        """


class Workers(NamedTuple):
    """The benches of a test, one for each worker, and the request to stop them."""

    benches: Sequence[Bench]
    stop: StopRequest


class ClearableBench(Protocol):
    """A bench that can delete everything that it has created. Its methods poll for signals."""

    def request_deletions(self) -> None:
        """Request the deletion of everything that still exists."""

    def clear(self) -> None:
        """Delete everything that the bench has created and that still exists.

        Raises:
            DayflyError: something cannot be deleted.
            Interrupted: this process has received another signal.
        """


@contextlib.contextmanager
def clean_up_at_end(benches: Sequence[ClearableBench], stop: StopRequest, left: str) -> Iterator[None]:
    """Clear the benches when the context ends, also after an error or Ctrl-C.

    After an error of the cleanup, the message ends with `left`.
    """
    with stop.signals as signals:
        try:
            yield
        except Interrupted:
            show.print_message("dayfly: deleting what the test has created; press Ctrl-C again to leave it in place")
            raise
        finally:
            signals.clear_pending()
            for bench in benches:
                bench.request_deletions()
            for bench in benches:
                try:
                    bench.clear()
                except (Interrupted, DayflyError) as fault:
                    show.print_message(f"dayfly: {fault}; {left}")
                    if isinstance(fault, Interrupted):
                        break


def run_scenarios(
    plugin: Plugin,
    params: Mapping[str, str],
    context: AbstractContextManager[Workers],
    *,
    chosen: Selection,
    output: str | None,
) -> int:
    """Run the scenarios, print the results and return the exit code.

    Args:
        plugin: The plugin.
        params: The params of its resource.
        context: Returns the workers when it is entered for the test.
        chosen: The scenarios to run.
        output: `json` or `junit`; None for text.

    Raises:
        DayflyError: a worker cannot run them.
    """
    results: dict[int, ScenarioResult] = {}
    try:
        with context as workers, contextlib.closing(_run_selected(workers, plugin, params, chosen)) as ended:
            for number, result, count in ended:
                results[number] = result
                if output is None:
                    show.print_block(as_line(result, len(results), count))
                    sys.stdout.flush()  # scenarios may take long
    except Interrupted as fault:
        show.print_message(f"dayfly: {fault}")
        _print_summary(results, plugin, output, aborted=True)
        return 128 + fault.number
    except DayflyError:
        _print_summary(results, plugin, output, aborted=True)
        raise
    _print_summary(results, plugin, output)
    return Exit.FAILED if any(result.finding for result in results.values()) else Exit.OK


def _run_selected(
    workers: Workers, plugin: Plugin, params: Mapping[str, str], chosen: Selection
) -> Generator[tuple[int, ScenarioResult, int]]:
    """Yield the number and result of each scenario, and the count of all selected scenarios.

    The numbers are those of a test with one worker. Several workers end their scenarios in another order.
    """
    benches, stop = workers
    scenarios: list[list[Scenario | SkippedScenario]] = [[bench.undisturbed_scenario(params)] for bench in benches]
    used = list(range(len(benches)))

    def run(worker: int, number: int) -> ScenarioResult:
        return _run(benches[worker], scenarios[worker][number], plugin, is_first=number == 0)

    [(_, result)] = run_all([0], used[:1], run, stop)
    if chosen.stops_after(result, is_first=True):
        yield 0, result, 1
        return
    for bench, own in zip(benches, scenarios, strict=True):
        own += [each for each in bench.fault_scenarios(params) if chosen.selects(each.name)]
    count = len(scenarios[0])
    yield 0, result, count
    pairs = [number for number in range(1, count) if len(used) > 1 and _has_twin(scenarios[0][number])]
    for batch in (pairs, [number for number in range(1, count) if number not in pairs]):
        with contextlib.closing(run_all(batch, used, run, stop)) as ended:
            for number, result in ended:
                yield number, result, count
                if chosen.stops_after(result, is_first=False):
                    return
                if batch is pairs and result.finding is not None:
                    show.print_message("dayfly: no parallel runs: this plugin fails with two sandboxes at once")
                    used = used[:1]


def _has_twin(scenario: Scenario | SkippedScenario) -> bool:
    return isinstance(scenario, Scenario) and scenario.twin


def _print_summary(
    numbered: Mapping[int, ScenarioResult], plugin: Plugin, output: str | None, *, aborted: bool = False
) -> None:
    """Print the results by number as `output` (None: they are printed already), and the summary.

    An aborted test without results prints nothing.
    """
    if aborted and not numbered:
        return
    results = [numbered[number] for number in sorted(numbered)]
    inventory = bool(plugin.spec.inventory)
    if output == "json":
        show.emit(as_json(results, inventory=inventory), output)
    elif output == "junit":
        show.print_block(as_junit(results, plugin.wire_name).rstrip("\n"))
    show.print_message(f"{'Aborted after ' if aborted else ''}{summary(results, inventory=inventory)}")


def _run(bench: Bench, scenario: Scenario | SkippedScenario, plugin: Plugin, *, is_first: bool) -> ScenarioResult:
    if isinstance(scenario, SkippedScenario):
        return ScenarioResult(scenario.name, 0.0, None, scenario.why)
    started = time.monotonic()
    try:
        outcome = run_scenario(bench, scenario)
    except DayflyError as fault:
        # The plugin was accepted in the first scenario. So this error is due to the change that this scenario makes.
        if is_first or fault.code != Exit.USAGE:
            raise
        return ScenarioResult(
            scenario.name, time.monotonic() - started, None, f"rejected before anything runs: {fault}"
        )
    seconds = time.monotonic() - started
    finding = judge(scenario, outcome, plugin.spec)
    return ScenarioResult(scenario.name, seconds, finding, "" if finding else outcome.missed_reason)


def run_scenario(bench: Bench, scenario: Scenario) -> Outcome:
    """Run one scenario and take inventories before and after the deletion.

    If the scenario has a twin, a second sandbox of the plugin exists at the same time and is deleted last. The
    inventory of the twin shows whether the deletion of the first sandbox removed things of the twin.
    """
    twin = bench.create(scenario) if scenario.twin else None
    box = bench.create(scenario)
    outcome = bench.wait_until_done(scenario, box)
    if twin is not None and bench.wait_until_done(scenario, twin).reached != "ready":
        outcome = outcome._replace(reached="failed", message="the second sandbox does not become ready")
    before = bench.inventory(scenario, twin) if twin else None
    listed_while_ready = bench.inventory(scenario, box) if outcome.reached == "ready" else None
    end = bench.delete(scenario, box)
    listed_after = bench.inventory(scenario, box) if end is None else None
    lost_of_twin: tuple[str, ...] = ()
    if twin is not None:
        after = bench.inventory(scenario, twin)
        lost_of_twin = tuple(sorted({*(before or ())} - {*(after or ())}))
        if (late := bench.delete(scenario, twin)) is not None:
            end = end or late
        elif listed_after is not None:
            listed_after = (*listed_after, *(bench.inventory(scenario, twin) or ()))
    if end is not None:
        message, log = end
        outcome = outcome._replace(cleanup_ended=False, message=message, log=log)
    return bench.complete(
        scenario,
        outcome._replace(listed_while_ready=listed_while_ready, listed_after=listed_after, lost_of_twin=lost_of_twin),
    )
