"""A story on the embedded host: its scripts are processes, its time is real."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import msgspec
from tests.conformance.story_documents import APP, FORK, READY, SHOP, Behaviour, Story, behaves
from tests.conformance.story_log import EVENTS, said, settled, tells
from tests.conformance.toy_kind import Toys
from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until
from tests.webhook.server import Server, answer

from dayfly.embedded import host
from dayfly.embedded.engine import Engine
from dayfly.spec.lifecycle import Lifecycle, LifecycleEvent, Unit, unit_id
from dayfly.spec.run import EndRequest
from dayfly.spec.workload import Workload

FIELDS = {
    LifecycleEvent.PRE_START: "pre_start",
    LifecycleEvent.POST_START: "post_start",
    LifecycleEvent.PRE_STOP: "pre_stop",
    LifecycleEvent.POST_STOP: "post_stop",
}


async def opened(machine: Machine, **options: Any) -> Engine:
    """Open the machine again, with these options; return its engine."""
    made: list[Engine] = []

    def make(*parts: Any) -> Engine:
        made.append(Engine(*parts))
        return made[-1]

    await machine.down()
    with mock.patch.object(host, "Engine", make):
        await machine.up(**options)
    return made[0]


def _scripted(document: Lifecycle, scripts: dict[str, Behaviour], servers: ExitStack) -> Lifecycle:
    events = {
        FIELDS[event]: tuple(
            _called(unit, scripts, document.resource, servers)
            if unit.webhook
            else _with_script(document.resource, unit, scripts)
            for unit in document.units(event)
        )
        for event in LifecycleEvent
    }
    above = tuple(_scripted(each, scripts, servers) for each in document.template_documents())
    return msgspec.structs.replace(document, template=tuple(map(msgspec.to_builtins, above)), **events)


def _with_script(resource: str, unit: Unit, scripts: dict[str, Behaviour]) -> Unit:
    if unit.exec is None:
        return unit
    how = scripts.get(unit_id(resource, unit.name), Behaviour())
    work = msgspec.structs.replace(unit.exec, script=behaves(unit, how, f': > "$JOURNAL.{unit.name}"'))
    return msgspec.structs.replace(unit, exec=work)


def _baseline(level: str) -> Workload:
    command = ("/bin/sh", "-c", ': > "$JOURNAL.app.$LEVEL"; exec sleep 7200')
    return Workload(name=APP.name, namespace=SHOP, command=command, env={"LEVEL": level})


async def _begun(machine: Machine, name: str) -> None:
    """Wait until a script has begun. Otherwise its runner would correctly report that it never began."""
    await until(machine.journal.with_name(f"{machine.journal.name}.{name}").exists, f"{name} to begin")


def _servers(documents: tuple[Lifecycle, ...]) -> set[str]:
    """Return the servers that webhooks are sent to."""
    units = (unit for document in documents for event in LifecycleEvent for unit in document.units(event))
    return {urlsplit(unit.webhook.request["url"]).netloc for unit in units if unit.webhook is not None}


def _stalled(machine: Machine) -> str:
    """A runner that reads its requests and starts nothing."""
    program = Path(machine.home.parent, "stalled")
    program.write_text(f'#!/bin/sh\n[ "$1" != serve ] || exec cat\nexec {machine.runner} "$@"\n')
    program.chmod(0o755)
    return str(program)


def _called(unit: Unit, scripts: dict[str, Behaviour], resource: str, servers: ExitStack) -> Unit:
    """Return a webhook with a server that behaves as the story defines."""
    how = scripts[unit_id(resource, unit.name)]
    left = list(how.statuses or (0,))
    body = {name: value.decode() for name, value in how.outputs.items()}

    def reply(*_: object) -> bytes | None:
        status = left.pop(0) if len(left) > 1 else left[0]
        return answer(status, body) if status else None

    server = servers.enter_context(Server(reply))
    assert unit.webhook is not None, "only a webhook calls"
    url = "https://127.0.0.1:1/" if how.broken else server.url
    work = msgspec.structs.replace(unit.webhook, request={**unit.webhook.request, "url": url})
    return msgspec.structs.replace(unit, webhook=work)


async def tell(machine: Machine, tale: Story) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the moves, the reports of each stage, and the changes of toys."""
    with ExitStack() as servers:
        return await _tell(machine, tale, servers)


async def _tell(machine: Machine, tale: Story, servers: ExitStack) -> tuple[list[str], list[list[str]], list[str]]:
    documents = tuple(_scripted(document, tale.scripts, servers) for document in tale.documents)
    answering = _servers(documents) - {"127.0.0.1:1"}
    engine = await opened(machine, webhooks=answering, runner=_stalled(machine) if tale.dies_at else machine.runner)
    toys = Toys(lambda live: live.run, lambda live: engine.wake(live.run.uid), gated=False, lost=tale.lost)
    engine.executors.add(toys)
    offer = doc.offer(*documents, forks=tale.kept)
    level = "1"
    await machine.host.baseline(_baseline(level))
    await machine.host.offer(offer)
    if tale.dies_at:
        await until(lambda: ("Claim", tale.dies_at, 1, "") in machine.history(), machine.history)
        engine = await opened(machine)
    looks: list[list[str]] = []

    for act in tale.acts:
        match act.what:
            case "until" | "await":
                await until(
                    lambda act=act: tells(settled(engine.scene("u")), act.of, act.said),
                    lambda act=act: f"{act}; now {machine.report()}",
                )
                if act.said == "Running":
                    await _begun(machine, act.of.rpartition("/")[2])
                if act.said == READY.said and FORK in tale.kept:
                    await _begun(machine, f"app.{level}")
                if act.what == "until":
                    looks.append(said(machine.report()))
            case "delete":
                await machine.host.stop("u", EndRequest(at=1, reason="Deleted", message="deleted"))
            case "abandon":
                await machine.host.abandon("u", EndRequest(at=1, reason="Abandoned", message=act.said))
            case "closed":
                await until(lambda: machine.report().closed, "the run to close")
            case "expire":
                await machine.host.offer(msgspec.structs.replace(offer, expires_at=1))
            case "lapse":
                await machine.host.lease("u", 1)
            case "retry":
                await machine.host.retry("u", {act.of: machine.unit(act.of).attempt}, "its owner")
            case "settle":
                toys.settle(act.of)
            case "follow":
                level = "2"
                await machine.host.baseline(_baseline(level))
                await until(lambda: machine.unit("fork:shop/app").attempt == 2, "the fork to follow")
            case "gone":
                await machine.gone()
    return [_line(*entry) for entry in machine.history() if entry[0] in EVENTS], looks, toys.journal


def _line(move: Any, unit: str, attempt: int, reason: str) -> str:
    return f"{EVENTS[move]}{f' {unit}#{attempt}' if unit else ''} {reason}".rstrip()
