"""The lives that a plugin is put through, each with what is to come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dayfly.spec.plugin import Output, PluginSpec, Retry, Step
from dayfly.testing import fault_scripts
from dayfly.testing.fault_scripts import Moment
from dayfly.testing.webhook_faults import SOON, WebhookFault, led, troubles

LONG = "x" * 10_000
ODD = "quote ' double \" dollar $HOME tick `id` semicolon ; a new\nline, and ä"


class DeleteAt(StrEnum):
    """What comes before the deletion."""

    READY = "ready"
    FAILED = "failed"
    SETTLED = "settled"  # either
    WAITS = "waits"  # a step waits to be ended


class Hand(StrEnum):
    """What somebody does to the object that a step has made."""

    EDITS = "edited"
    DELETES = "deleted"


class Life(NamedTuple):
    """One life.

    Attributes:
        name: What happens in it, as a sentence's end: `provision is killed at its end`.
        spec: The plugin, changed for it.
        params: What the sandbox gives.
        ends: How far it comes before it is deleted.
        waits: The line in the journal that says so, for `DeleteAt.WAITS`.
        twin: Whether a second sandbox lives beside it, and longer.
        step: The step that is harmed, if one is.
        moment: When somebody comes to the step from outside: to delete the sandbox for `DeleteAt.WAITS`, else its pod.
        after: How many seconds after the step's beginning that is.
        hand: What somebody does to the object that the step has made, before the sandbox is deleted.
        trouble: What becomes of the first request of the step, which is a webhook.
    """

    name: str
    spec: PluginSpec
    params: Mapping[str, str]
    ends: DeleteAt
    waits: str = ""
    twin: bool = False
    step: str = ""
    moment: Moment | None = None
    after: float = 0.0
    trouble: WebhookFault | None = None
    hand: Hand | None = None

    @property
    def pod(self) -> bool:
        """Whether the pod of its step is deleted."""
        return self.moment is not None and self.ends is not DeleteAt.WAITS


class Played(NamedTuple):
    """What happened in one life.

    Attributes:
        reached: How it stood before the deletion: ready or failed; empty if it came to neither in time.
        message: What was said of it then, and if it did not go, instead of that.
        gone: Whether its cleanup came to an end in time.
        there: What the inventory listed while it was ready; None if nobody could look.
        left: What it listed after its end; None likewise.
        others: What of its twin's was missing after its end.
        blind: Why the inventory could not look.
        begun: How often each step began.
        log: The last lines of the step that failed.
        missed: Why what should have happened in it did not.
        seconds: How long all of it took.
    """

    reached: str = ""
    message: str = ""
    gone: bool = True
    there: tuple[str, ...] | None = None
    left: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()
    blind: str = ""
    begun: Mapping[str, int] = {}
    log: tuple[str, ...] = ()
    missed: str = ""
    seconds: float = 0.0


class Maker(NamedTuple):
    """Makes the lives of one plugin."""

    spec: PluginSpec
    params: Mapping[str, str]
    journal: str
    ways: Mapping[str, str] = {}

    def life(self, name: str, ends: DeleteAt, changed: Mapping[str, Step] = {}, **more: object) -> Life:
        """One with these steps changed; all others note their beginnings."""
        spec = _each(self.spec, lambda step: changed.get(step.name) or self.noted(step))
        return Life(name, spec, more.pop("params", self.params), ends, **more)  # type: ignore[arg-type] # Life's own fields

    def noted(self, step: Step) -> Step:
        return self.by(step, fault_scripts.noted)

    def by(self, step: Step, around: Callable[..., str], *more: object) -> Step:
        """The step with its script changed, and tried again soon; a webhook on its way, and all else as it is."""
        if step.name in self.ways:
            return led(step, self.ways[step.name])
        if step.script is None:
            return step
        retry = msgspec.structs.replace(step.retry or Retry(), backoff=SOON)
        script = around(step.script, step.name, self.journal, *more)
        return msgspec.structs.replace(step, script=script, retry=retry)


def first(spec: PluginSpec, params: Mapping[str, str], journal: str) -> Life:
    """The life in which nothing goes wrong. How long its steps take is when others are in their middle."""
    return Maker(as_scripts(spec), params, journal).life("it is created and deleted", DeleteAt.READY)


def lives(
    spec: PluginSpec,
    params: Mapping[str, str],
    journal: str,
    took: Mapping[str, float],
    ways: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Life]:
    """All others.

    Args:
        spec: The plugin.
        params: What its author gives to it; each has all params that it needs.
        journal: A file to which steps may append.
        took: How long each step took in the first life, in seconds.
        ways: The URL at which somebody waits for the requests of a webhook, by step.
    """
    maker = Maker(as_scripts(spec), params, journal, ways)
    for step in maker.spec.create:
        if step.script is not None:
            yield from _of_create(maker, step, took.get(step.name, 0.0) / 2)
        elif step.name in ways:
            yield from _of_requests(maker, step, creates=True)
    for step in maker.spec.delete:
        if step.script is not None:
            yield from _of_delete(maker, step, took.get(step.name, 0.0) / 2)
        elif step.name in ways:
            yield from _of_requests(maker, step, creates=False)
    yield from of_sandboxes(maker)


def _of_create(maker: Maker, step: Step, half: float) -> Iterator[Life]:
    again = repeats(step)
    for moment in Moment:
        changed = {step.name: maker.by(step, fault_scripts.killed, moment, half)}
        ends = DeleteAt.READY if again else DeleteAt.FAILED
        yield maker.life(f"{step.name} is killed {at(moment)}", ends, changed, step=step.name)
    yield from of_outputs(maker, step)
    for name, waiting in (
        (f"it is deleted before {step.name}", maker.by(step, fault_scripts.held)),
        (f"it is deleted while {step.name} is at work", maker.by(step, fault_scripts.at_work, half)),
    ):
        yield maker.life(
            name, DeleteAt.WAITS, {step.name: waiting}, waits=fault_scripts.waits(step.name), step=step.name
        )


def _of_delete(maker: Maker, step: Step, half: float) -> Iterator[Life]:
    for moment in Moment:
        changed = {step.name: maker.by(step, fault_scripts.killed, moment, half)}
        yield maker.life(f"{step.name} is killed {at(moment)}", DeleteAt.READY, changed, step=step.name)
    yield again(maker, step)


def _of_requests(maker: Maker, step: Step, *, creates: bool) -> Iterator[Life]:
    """A webhook's first request comes to grief. Whether the step succeeds then, its `find` and its key may say."""
    for trouble in troubles(repeats=repeats(step) or not creates, creates=creates):
        waits = trouble in (WebhookFault.BEFORE, WebhookFault.AFTER)
        settled = DeleteAt.READY if repeats(step) or not creates else DeleteAt.SETTLED
        yield maker.life(
            trouble.of(step.name),
            DeleteAt.WAITS if waits else settled,
            waits=fault_scripts.waits(step.name) if waits else "",
            step=step.name,
            trouble=trouble,
        )


def as_scripts(spec: PluginSpec) -> PluginSpec:
    """The plugin with commands as scripts, which do the same and can be harmed."""

    def changed(step: Step) -> Step:
        if step.command is None:
            return step
        return msgspec.structs.replace(step, command=None, script=fault_scripts.as_script(step.command))

    return msgspec.structs.replace(
        spec, create=tuple(map(changed, spec.create)), delete=tuple(map(changed, spec.delete))
    )


def of_outputs(maker: Maker, step: Step) -> Iterator[Life]:
    """A create step that has outputs does its work, and nobody gets to know them."""
    if step.outputs:
        nowhere = [_unreported(output) for output in step.outputs]
        lost = msgspec.structs.replace(maker.noted(step), outputs=tuple(nowhere))
        once = msgspec.structs.replace(lost, retry=None)
        yield maker.life(f"what {step.name} has made is never told", DeleteAt.FAILED, {step.name: once}, step=step.name)


def again(maker: Maker, step: Step) -> Life:
    """A delete step does its work, is not believed, and has to do it again."""
    twice = {step.name: maker.by(step, fault_scripts.refused)}
    return maker.life(f"{step.name} does its work and has to do it again", DeleteAt.READY, twice, step=step.name)


def of_sandboxes(maker: Maker) -> Iterator[Life]:
    """Another sandbox beside it, and other params."""
    yield maker.life("two live at once, and one is deleted", DeleteAt.READY, twin=True)
    yield from _of_params(maker)


def repeats(step: Step) -> bool:
    """Whether a create step begins again after a failure."""
    return bool(step.retry and step.retry.idempotent and step.retry.limit != 1)


def _of_params(maker: Maker) -> Iterator[Life]:
    for name, rule in maker.spec.params().items():
        if name in maker.params and not rule.required:
            less = {key: value for key, value in maker.params.items() if key != name}
            yield maker.life(f"the param {name} is missing", DeleteAt.SETTLED, params=less)
        for what, value in (("is very long", LONG), ("has quotes and a new line", ODD)):
            yield maker.life(f"the param {name} {what}", DeleteAt.SETTLED, params={**maker.params, name: value})


def at(moment: Moment) -> str:
    """When it is, in words."""
    return "in its middle" if moment is Moment.MIDDLE else f"at its {moment}"


def _unreported(output: Output) -> Output:
    return msgspec.structs.replace(output, value_from_path="/nowhere/at-all")


def _each(spec: PluginSpec, change: Callable[[Step], Step]) -> PluginSpec:
    return msgspec.structs.replace(
        spec, create=tuple(map(change, spec.create)), delete=tuple(map(change, spec.delete)), inventory=()
    )
