"""`plugin test` on a cluster: sandboxes of a namespace, with nobody's rights but those of whoever tests.

Steps are met from outside: their sandbox is deleted, or their pod, at a moment that its status tells of. A census runs
as a step of a sandbox beside, since what it looks at may be reached from there alone. Whatever is made bears one label
and a time to live, and is remembered by its UID: nothing else is ever deleted.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli import from_status, show, testing_wishes
from dayfly.cli.child import Interrupted, Signals
from dayfly.cli.exits import CliError, Exit
from dayfly.cli.testing_wishes import Wish
from dayfly.cli.watch import HOPELESS
from dayfly.execute.pod import names as pod_names
from dayfly.kube import errors
from dayfly.kube.objects import PODS, Resource
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, PLUGINS, SANDBOXES
from dayfly.plan.reasons import Reason
from dayfly.testing import Ends, Life, NotPlayed, Played, first_outside, lives_outside
from dayfly.testing.harm import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from dayfly.cli.cluster import Cluster
    from dayfly.kube.client import Client
    from dayfly.spec.plugin import Plugin
    from dayfly.spec.report import Report, UnitReport

_SANDBOXES, _PLUGINS = SANDBOXES.read_as(dict[str, Any]), PLUGINS.read_as(dict[str, Any])
_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    dict[str, Any],
    namespaced=False,
)
_HOPELESS = (*HOPELESS, Reason.REFUSED)
_PUBLISH = "; what was granted to it by its name it has with --publish"
_LOOK_S = 0.2
_KILL_S = 1
_TAIL_LINES = 5


@contextlib.contextmanager
def bench(plugin: Plugin, cluster: Cluster, seconds: float, *, publish: bool) -> Iterator[_Bench]:
    """A place in a cluster; in the end, and after Ctrl-C, all that was made there is gone, or said.

    Raises:
        CliError: a right is missing, or the cluster cannot be reached.
    """
    place = _Bench(plugin, cluster, seconds, testing_wishes.Wishes(plugin, publish=publish))
    place.check()
    with Signals() as signals:
        place.signals = signals
        try:
            yield place
        except Interrupted:
            show.talk("dayfly: removing what was made for the test; once more leaves that to its time to live")
            raise
        finally:
            signals.forget()
            place.clear()


class _Box(msgspec.Struct):
    """A sandbox that we made."""

    name: str
    uid: str
    key: str
    life: Life | None
    pods: dict[str, str] = {}
    began: float = 0.0
    met: bool = False
    gone: bool = False


class _BlindError(Exception):
    """A census could not look."""


class _Bench:
    def __init__(self, plugin: Plugin, cluster: Cluster, seconds: float, wishes: testing_wishes.Wishes) -> None:
        self.signals = Signals()
        self._plugin = plugin
        self._cluster = cluster
        self._seconds = seconds
        self._wishes = wishes
        self._boxes: list[_Box] = []
        self._versions: dict[str, str] = {}
        self._took: dict[str, float] = {}
        self._missed = self._blind = ""

    # What the person may.

    def check(self) -> None:
        """Refuse before anything is made, and forget what tests left that were killed.

        Raises:
            CliError: a right is missing.
        """
        here = self._cluster.namespace
        for verb in ("create", "get", "delete"):
            self._need(verb, "dayfly.dev", "sandboxes", here)
        self._need("list", "dayfly.dev", "steplogs", here)
        if self._wishes.publish:
            for verb in ("list", "create", "delete"):
                self._need(verb, "dayfly.dev", "resourceplugins", "")
            self._forget()

    def _need(self, verb: str, group: str, kind: str, namespace: str) -> None:
        if not self._may(verb, group, kind, namespace):
            place = f" in the namespace {namespace}" if namespace else ""
            message = f"you may not {verb} {kind}{place}, which the test needs"
            raise CliError(Exit.DENIED, message, "ask the cluster's administrator for that right")

    def _may(self, verb: str, group: str, kind: str, namespace: str) -> bool:
        asked = {"verb": verb, "group": group, "resource": kind, "namespace": namespace}
        body = {"spec": {"resourceAttributes": asked}}
        answer = self._cluster.ask(lambda client: client.create(_REVIEWS, body))
        return bool(answer["status"].get("allowed"))

    def _runners(self) -> str:
        wished = self._plugin.spec.runner.namespace
        return pod_names.RUNNERS if wished in ("", "signadot") else wished

    def lives(self, params: Mapping[str, str]) -> Iterator[Life | NotPlayed]:
        """The first is played before the others are made: they depend on how long its steps took."""
        yield first_outside(self._plugin.spec, params)
        runners = self._runners()
        pods = "" if self._may("delete", "", "pods", runners) else f"you may not delete pods in {runners}"
        yield from lives_outside(self._plugin.spec, params, self._took, pods=pods)

    # One life.

    def begin(self, life: Life) -> _Box:
        return self._make(self._wishes.of_life(life, self._span()), life)

    def _span(self) -> int:
        """How many minutes what is made may live: longer than anything that we wait for."""
        return 10 + int(self._seconds // 15)

    def _make(self, wish: Wish, life: Life | None) -> _Box:
        self._heed()
        if wish.plugin is not None:
            version = wish.plugin
            made = self._cluster.ask(lambda client: client.create(_PLUGINS, version))
            self._versions[made["metadata"]["name"]] = made["metadata"]["uid"]
        here = self._cluster.namespace
        found = self._cluster.ask(lambda client: client.create(_SANDBOXES, wish.sandbox, here))
        box = _Box(found["metadata"]["name"], found["metadata"]["uid"], "", life)
        self._boxes.append(box)
        return box

    def until(self, life: Life, box: _Box) -> Played:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self._look(box)
            if report is None:
                raise CliError(Exit.FAILED, f"somebody else has deleted the sandbox {box.name}", "start the test again")
            self._meet(life, box, report)
            if life.ends is Ends.WAITS and box.met:
                return Played()
            if report.ready:
                self._time(report)
                return Played(reached="ready", missed=self._passed(life, box, report))
            if report.reason in _HOPELESS:
                missed = "" if life.pod else self._passed(life, box, report)
                more = _PUBLISH if report.reason == Reason.REFUSED and not self._wishes.publish else ""
                return Played(
                    reached="failed", message=report.message + more, log=self._log(box, report), missed=missed
                )
            if time.monotonic() > deadline:
                missed = f"{life.step} has not begun within {self._seconds:g} s" if life.ends is Ends.WAITS else ""
                return Played(message=f"not within {self._seconds:g} s: {report.message}", missed=missed)
            self._cluster.pause(_LOOK_S)

    def end(self, life: Life | None, box: _Box) -> tuple[str, tuple[str, ...]] | None:
        self._delete(box)
        deadline, last = time.monotonic() + self._seconds, None
        began: dict[str, float] = {}
        while (report := self._look(box)) is not None and time.monotonic() < deadline:
            last = report
            if life is not None:
                self._meet(life, box, report)
            self._time(report)
            for unit in report.units:
                if _begun(unit) and unit.event in ("preStop", "postStop"):
                    began.setdefault(unit.name, time.monotonic())
            self._cluster.pause(_LOOK_S)
        if report is None:
            box.gone = True
            for name, since in began.items():  # its own last word is rarely seen
                self._took.setdefault(name, max(time.monotonic() - since - _KILL_S, 0.0))
            if life is not None and life.pod and not box.met and not self._missed:
                self._missed = f"{life.step} was over before anybody could delete its pod"
            return None
        assert last is not None, "it is still there"
        held = f"not within {self._seconds:g} s: {last.reason}: {last.message}", self._log(box, last)
        self._give_up(box)
        return held

    def close(self, life: Life, played: Played) -> Played:  # noqa: ARG002 # the bench's protocol
        missed, blind = played.missed or self._missed, self._blind
        self._missed = self._blind = ""
        return played._replace(missed=missed, blind=blind)

    def _meet(self, life: Life, box: _Box, report: Report) -> None:
        """Come to the step at its moment; its pod is deleted then, if that is meant."""
        if life.moment is None or box.met:
            return
        unit = self._unit(life, report)
        if unit is None or not _begun(unit) or unit.attempt != 1:
            return
        box.began = box.began or time.monotonic()
        if time.monotonic() - box.began < life.after:
            return
        if life.pod:
            where, _, pod = box.pods.get(unit.id, "").partition("/")
            if not pod or not self._cluster.ask(lambda client: _kill(client, pod, where)):
                return
        box.met = True

    def _unit(self, life: Life, report: Report) -> UnitReport | None:
        wanted = f"{self._wishes.resource}/{life.step}"
        return next((unit for unit in report.units if unit.id == wanted), None)

    def _passed(self, life: Life, box: _Box, report: Report) -> str:
        """Why a create step was not met, if it was not."""
        if life.moment is None or box.met or any(step.name == life.step for step in self._plugin.spec.delete):
            return ""
        unit = self._unit(life, report)
        return f"{life.step} was over before anybody could come to it" if unit else f"{life.step} has not begun"

    def _time(self, report: Report) -> None:
        for unit in report.units:
            if unit.state == "succeeded" and unit.started_at and unit.ended_at:
                self._took.setdefault(unit.name, (unit.ended_at - unit.started_at) / 1000)

    def _log(self, box: _Box, report: Report) -> tuple[str, ...]:
        """The end of what the step that failed has printed."""
        failed = next((unit for unit in report.units if unit.state in ("retrying", "failed")), None)
        if failed is None:
            return ()
        self._cluster.turn_to_another()
        try:
            logs = [each for each in self._cluster.attempts(box.name, follow=False) if each["unit"] == failed.id]
            text = self._cluster.read(box.name, failed.id, logs[-1]["attempt"], 0) if logs else b""
        except CliError:
            return ()
        return tuple(text.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    # What is there.

    def census(self, life: Life, box: _Box) -> tuple[str, ...] | None:
        if not self._plugin.spec.census:
            return None
        wish = self._wishes.of_census(life, box.name, box.uid, box.key, self._span())
        look = self._make(wish, None)
        try:
            return self._listed(look)
        except _BlindError as fault:
            self._blind = str(fault)
            return None
        finally:
            self._delete(look)

    def _listed(self, look: _Box) -> tuple[str, ...]:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self._look(look)
            if report is None or report.reason in _HOPELESS or time.monotonic() > deadline:
                why = report.message if report else "somebody has deleted its sandbox"
                raise _BlindError(f"the census cannot be run: {why}")
            if report.ready:
                break
            self._cluster.pause(_LOOK_S)
        found: list[str] = []
        self._cluster.turn_to_another()
        logs = {each["unit"]: each["attempt"] for each in self._cluster.attempts(look.name, follow=False)}
        for step in self._plugin.spec.census:
            unit = f"{self._wishes.resource}/{step.name}"
            log = self._cluster.read(look.name, unit, logs[unit], 0) if unit in logs else b""
            lines, why = listed(log.decode(errors="replace"))
            if why:
                raise _BlindError(f"the census {step.name} {why}")
            found += lines
        return tuple(found)

    # Making and taking away.

    def _heed(self) -> None:
        """Let a signal that came meanwhile be heard: between requests, so that we know what we have made."""
        with self.signals.raising():
            pass

    def _look(self, box: _Box) -> Report | None:
        """How it stands; None once it is gone."""
        self._heed()
        here = self._cluster.namespace
        found = self._cluster.ask(lambda client: client.find(_SANDBOXES, box.name, here))
        if found is None or found["metadata"]["uid"] != box.uid:
            return None
        status = found.get("status") or {}
        box.key = status.get("routingKey", "") or box.key
        box.pods = {unit["id"]: unit.get("pod", "") for unit in status.get("units") or ()}
        return from_status.report(found, time.time_ns() // 1_000_000)

    def _delete(self, box: _Box) -> None:
        here = self._cluster.namespace

        async def delete(client: Client) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.delete(_SANDBOXES, box.name, here, uid=box.uid)

        self._cluster.ask(delete)

    def _give_up(self, box: _Box) -> None:
        """Its cleanup hangs, which has been seen: nobody waits for it any more."""
        here, why = self._cluster.namespace, "dayfly plugin test: its cleanup did not end in time"
        patch = {"metadata": {"uid": box.uid, "annotations": {ABANDON_ANNOTATION: why}}}

        async def abandon(client: Client) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.patch(_SANDBOXES, patch, box.name, here)

        self._cluster.ask(abandon)

    def clear(self) -> None:
        """Take away whatever is still there of all that was made."""
        try:
            there = [box for box in self._boxes if not box.gone]
            for box in there:
                self._delete(box)
            stuck = [box for box in there if self.end(box.life, box) is not None and self.end(None, box) is not None]
            left = [*(f"sandbox {box.name}" for box in stuck), *self._retract()]
        except (Interrupted, CliError) as fault:
            show.talk(f"dayfly: {fault}; not everything that was made is gone: {self._wishes.see(self._cluster.flags)}")
            return
        if left:
            show.talk(f"dayfly: still there: {', '.join(left)}; {self._wishes.see(self._cluster.flags)}")

    def _retract(self) -> list[str]:
        """Delete the versions that were published; those that stay in use."""
        deadline = time.monotonic() + self._seconds
        while self._versions and time.monotonic() < deadline:
            self._heed()
            for name, uid in list(self._versions.items()):
                if self._cluster.ask(_unpublish(name, uid)):
                    del self._versions[name]
            if self._versions:
                self._cluster.pause(_LOOK_S)
        return [f"plugin {name}" for name in self._versions]

    def _forget(self) -> None:
        """Versions of tests that were killed, and are over."""
        label = testing_wishes.LABEL
        there = self._cluster.ask(lambda client: client.list_all(PLUGINS.metadata_only(), labels=label)).items
        for each in there:
            born = from_status.milliseconds(each.metadata.creation_timestamp)
            if time.time() - born / 1000 > testing_wishes.OLD_S:
                self._cluster.ask(_unpublish(each.metadata.name, each.metadata.uid))


async def _kill(client: Client, pod: str, namespace: str) -> bool:
    """Delete a pod; whether it was there."""
    try:
        await client.delete(PODS, pod, namespace, grace=_KILL_S)
    except errors.NotFound:
        return False
    return True


def _unpublish(name: str, uid: str) -> Callable[[Client], Coroutine[Any, Any, bool]]:
    """Delete a version; whether it is gone. One that sandboxes use is refused (policy dayfly-in-use)."""

    async def delete(client: Client) -> bool:
        try:
            await client.delete(_PLUGINS, name, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.Forbidden:
            return False
        return True

    return delete


def _begun(unit: UnitReport) -> bool:
    return unit.state == "running" and (unit.kind == "object" or unit.reason == Reason.RUNNING)
