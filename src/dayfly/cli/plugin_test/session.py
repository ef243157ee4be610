"""`plugin test`: plays a plugin's lives on this machine or on a cluster, looks what is left, and tells of each."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from dayfly.cli.local.child import Interrupted, Signals
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.testing import Fault, Life, LifeResult, NotPlayed, Played, as_json, as_junit, as_line, judge, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dayfly.spec.plugin import Plugin


class BlindError(Exception):
    """An inventory could not look."""


class Bench(Protocol):
    """Where lives are played."""

    def lives(self, params: Mapping[str, str]) -> Iterator[Life | NotPlayed]:
        """The first is played before the others are made: they depend on how long its steps took."""

    def begin(self, life: Life) -> Any:
        """Make a sandbox for a life."""

    def until(self, life: Life, box: Any) -> Played:
        """How far it comes before it is to be deleted."""

    def end(self, life: Life, box: Any) -> tuple[str, tuple[str, ...]] | None:
        """Delete a sandbox and wait; None once it is gone, else what holds it and a log's end. It is given up then."""

    def inventory(self, life: Life, box: Any) -> tuple[str, ...] | None:
        """What there is of a sandbox's resource; None if the plugin cannot tell."""

    def close(self, life: Life, played: Played) -> Played:
        """What only the place knows of a life that is over."""


class Heeding(Protocol):
    """Who looks now and then whether a signal came, and can take away what it has made."""

    signals: Signals

    def clear(self) -> None:
        """Take away whatever is still there of all that was made. One more signal ends that."""


@contextlib.contextmanager
def heeding(place: Heeding) -> Iterator[None]:
    """Within this, whatever ends the test (its own end, a fault, Ctrl-C) has all that was made taken away."""
    with Signals() as signals:
        place.signals = signals
        try:
            yield
        except Interrupted:
            show.print_message("dayfly: removing what was made for the test; once more leaves it where it is")
            raise
        finally:
            signals.forget()
            place.clear()


def play(
    plugin: Plugin,
    params: Mapping[str, str],
    bench: AbstractContextManager[Bench],
    *,
    only: str,
    output: str | None,
) -> int:
    """Play the lives and tell of them as they come; `only` picks those whose names have these words.

    Raises:
        DayflyError: they cannot be played there.
    """
    tolds: list[LifeResult] = []
    try:
        with bench as place:
            for life in place.lives(params):
                if tolds and only not in life.name:
                    continue
                told = _told(place, life, plugin, first=not tolds)
                tolds.append(told)
                if output is None:
                    show.block(as_line(told))
                    sys.stdout.flush()  # some lives take their time
                if told.finding and told.finding.fault in (Fault.NOT_CREATED, Fault.BLIND) and len(tolds) == 1:
                    break  # whatever else were found would follow from this
    except Interrupted as fault:
        show.print_message(f"dayfly: {fault}")
        _sum_up(tolds, plugin, output, aborted=True)
        return 128 + fault.number
    except DayflyError:
        _sum_up(tolds, plugin, output, aborted=True)
        raise
    _sum_up(tolds, plugin, output)
    return Exit.FAILED if any(told.finding for told in tolds) else Exit.OK


def _sum_up(tolds: Sequence[LifeResult], plugin: Plugin, output: str | None, *, aborted: bool = False) -> None:
    """Print the results of the lives that were played; nothing if none was."""
    if aborted and not tolds:
        return
    inventory = bool(plugin.spec.inventory)
    if output == "json":
        show.emit(as_json(tolds, inventory=inventory), output)
    elif output == "junit":
        show.block(as_junit(tolds, plugin.wire_name).rstrip("\n"))
    show.print_message(f"{'Aborted after ' if aborted else ''}{summary(tolds, inventory=inventory)}")


def _told(place: Bench, life: Life | NotPlayed, plugin: Plugin, *, first: bool) -> LifeResult:
    if isinstance(life, NotPlayed):
        return LifeResult(life.name, 0.0, None, life.why)
    started = time.monotonic()
    try:
        played = live(place, life)
    except DayflyError as fault:
        # The plugin itself was accepted in its first life: only what this life changes can be refused.
        if first or fault.code != Exit.USAGE:
            raise
        return LifeResult(life.name, time.monotonic() - started, None, f"it is refused before anything runs: {fault}")
    took = time.monotonic() - started
    finding = judge(life, played, plugin.spec)
    return LifeResult(life.name, took, finding, "" if finding else played.missed)


def live(place: Bench, life: Life) -> Played:
    """One life from its beginning to its end, and what is there of it before and after."""
    twin = place.begin(life) if life.twin else None
    box = place.begin(life)
    played = place.until(life, box)
    if twin is not None and place.until(life, twin).reached != "ready":
        played = played._replace(reached="failed", message="the second of the two does not become ready")
    before = place.inventory(life, twin) if twin else None
    there = place.inventory(life, box) if played.reached == "ready" else None
    end = place.end(life, box)
    left = place.inventory(life, box) if end is None else None
    others: tuple[str, ...] = ()
    if twin is not None:
        after = place.inventory(life, twin)
        others = tuple(sorted({*(before or ())} - {*(after or ())}))
        if (late := place.end(life, twin)) is not None:
            end = end or late
        elif left is not None:
            left = (*left, *(place.inventory(life, twin) or ()))
    if end is not None:
        message, log = end
        played = played._replace(gone=False, message=message, log=log)
    return place.close(life, played._replace(there=there, left=left, others=others))
