"""The lives that can be played from outside, where steps are pods and nobody shares a file with them.

What happens to a step happens to its pod, or to the sandbox meanwhile. A script stays at the moment that is meant
until somebody comes (`harm.paused`), so that it is met however slow the cluster is; what is no script is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dayfly.testing import fault_scripts
from dayfly.testing.fault_scripts import NO_JOURNAL, Moment
from dayfly.testing.lives import DeleteAt, Hand, Life, Maker, again, at, of_outputs, of_sandboxes, repeats
from dayfly.testing.webhook_faults import troubles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.spec.plugin import PluginSpec, Step

# Between what a status says and what it is about.
_LATE_S = 1.0
# By default a webhook or command that is done at once is met at its start alone.
_SHORT_S = 4.0


class NotPlayed(NamedTuple):
    """A life that nobody can play there, and why."""

    name: str
    why: str


class Lacking(NamedTuple):
    """Why pods of steps cannot be deleted, and why the objects of each step that makes one cannot be changed."""

    pods: str = ""
    objects: Mapping[str, str] = {}


def first_outside(spec: PluginSpec, params: Mapping[str, str]) -> Life:
    """The life in which nothing goes wrong."""
    return Maker(spec, params, NO_JOURNAL).life("it is created and deleted", DeleteAt.READY)


def lives_outside(
    spec: PluginSpec, params: Mapping[str, str], took: Mapping[str, float], lacking: Lacking
) -> Iterator[Life | NotPlayed]:
    """All others, and those that are not played.

    Args:
        spec: The plugin.
        params: What its author gives to it; each has all params that it needs.
        took: How long each step took in the first life, in seconds.
        lacking: What the person may not do.
    """
    maker = Maker(spec, params, NO_JOURNAL)
    for step in spec.create:
        yield from _ended(
            maker, step, took.get(step.name, 0.0), lacking.pods, DeleteAt.READY if repeats(step) else DeleteAt.FAILED
        )
        if step.script is not None:
            yield from of_outputs(maker, step)
        yield from _deleted(maker, step, took.get(step.name, 0.0))
        if step.object is not None:
            yield from _meddled(maker, step, lacking.objects.get(step.name, ""))
    for step in spec.delete:
        yield from _ended(maker, step, took.get(step.name, 0.0), lacking.pods, DeleteAt.READY)
        if step.script is not None:
            yield again(maker, step)
    yield from of_sandboxes(maker)
    for step in (*spec.create, *spec.delete):
        if step.webhook is not None:
            creates = step in spec.create
            for trouble in troubles(repeats=not creates or repeats(step), creates=False):
                yield NotPlayed(
                    trouble.of(step.name), "nobody stands between a pod and its server: play it without --context"
                )
        yield NotPlayed(f"the node of {step.name} is lost", "it needs power over the node")


def _ended(maker: Maker, step: Step, took: float, pods: str, ends: DeleteAt) -> Iterator[Life | NotPlayed]:
    """The step's pod is deleted at each moment; where it cannot be, a script ends itself."""
    for moment in Moment:
        name = f"the pod of {step.name} is deleted {at(moment)}"
        if step.object is not None:
            yield NotPlayed(name, f"{step.name} is an object, and has no pod")
        elif not pods:
            yield from _met(maker, step, moment, took, name, ends)
        elif step.script is not None:
            yield NotPlayed(name, pods)
            changed = {step.name: maker.by(step, fault_scripts.killed, moment, took / 2)}
            yield maker.life(f"{step.name} is killed {at(moment)}", ends, changed, step=step.name)
        else:
            yield NotPlayed(name, pods)


def _deleted(maker: Maker, step: Step, took: float) -> Iterator[Life | NotPlayed]:
    """The sandbox is deleted while a create step is at each moment."""
    for moment in Moment:
        yield from _met(maker, step, moment, took, f"it is deleted while {step.name} is {at(moment)}", DeleteAt.WAITS)


def _meddled(maker: Maker, step: Step, why: str) -> Iterator[Life | NotPlayed]:
    """Somebody lays hand on what an object step has made, and then the sandbox is deleted."""
    for hand in Hand:
        name = f"what {step.name} has made is {hand} by somebody"
        yield NotPlayed(name, why) if why else maker.life(name, DeleteAt.READY, step=step.name, hand=hand)


def _met(
    maker: Maker, step: Step, moment: Moment, took: float, name: str, ends: DeleteAt
) -> Iterator[Life | NotPlayed]:
    """Somebody comes at a moment of the step."""
    if step.script is not None:
        after = {Moment.START: 0.0, Moment.MIDDLE: took / 2 + _LATE_S, Moment.END: took + _LATE_S}[moment]
        changed = {step.name: maker.by(step, fault_scripts.paused, moment, took / 2)}
        yield maker.life(name, ends, changed, step=step.name, moment=moment, after=after)
    elif moment is Moment.START:
        yield maker.life(name, ends, step=step.name, moment=moment)
    elif moment is Moment.MIDDLE and took > _SHORT_S:
        yield maker.life(name, ends, step=step.name, moment=moment, after=took / 2)
    else:
        yield NotPlayed(name, f"{step.name} is no script, and does not stay there")
