"""A story on the embedded host: its scripts are processes, its time is real."""

import base64
from typing import Any

import msgspec

from conformance.tales import Behaviour, Tale
from conformance.telling import EVENTS, said
from conformance.toys import Toys
from dayfly.spec.lifecycle import Event, Lifecycle, Unit, unit_id
from dayfly.spec.run import Request
from embedded import documents as doc
from embedded.machine import Machine, until

FIELDS = {
    Event.PRE_START: "pre_start",
    Event.POST_START: "post_start",
    Event.PRE_STOP: "pre_stop",
    Event.POST_STOP: "post_stop",
}


def _scripted(document: Lifecycle, scripts: dict[str, Behaviour]) -> Lifecycle:
    events = {
        FIELDS[event]: tuple(_with_script(document.resource, unit, scripts) for unit in document.units(event))
        for event in Event
    }
    return msgspec.structs.replace(document, **events)


def _with_script(resource: str, unit: Unit, scripts: dict[str, Behaviour]) -> Unit:
    if unit.exec is None:
        return unit
    how = scripts.get(unit_id(resource, unit.name), Behaviour())
    lines = ["#!/bin/sh", f'[ "$DAYFLY_ATTEMPT" -gt {how.fails} ] || exit 1']
    for output in unit.outputs:
        value = how.outputs.get(output.name, b"")
        if len(set(value)) == 1 and len(value) > 1:
            lines.append(f"head -c {len(value)} /dev/zero | tr '\\0' {chr(value[0])} > {output.path}")
        else:
            lines.append(f"echo {base64.b64encode(value).decode()} | base64 -d > {output.path}")
    if how.endless:
        lines += [f': > "$JOURNAL.{unit.name}"', "exec sleep 7200"]
    work = msgspec.structs.replace(unit.exec, script="\n".join((*lines, "")))
    return msgspec.structs.replace(unit, exec=work)


async def tell(machine: Machine, tale: Tale) -> tuple[list[str], list[list[str]], list[str]]:
    """Moves, what was said, and what was done to toys."""
    engine = machine.host._engine
    toys = Toys(lambda live: live.run, lambda live: engine.wake(live.run.uid), gated=False)
    engine.executors.add(toys)
    documents = tuple(_scripted(document, tale.scripts) for document in tale.documents)
    await machine.host.offer(doc.offer(*documents, forks=tale.kept))
    looks: list[list[str]] = []

    def is_said(of: str, word: str) -> bool:
        report = machine.report()
        if not of:
            return bool(report.reason == word)
        return any(unit.id == of and unit.reason == word for unit in report.units)

    for act in tale.acts:
        match act.what:
            case "until" | "await":
                await until(lambda act=act: is_said(act.of, act.said), lambda act=act: f"{act}; now {machine.report()}")
                if (
                    act.said == "Running"
                ):  # a runner that has not begun its script yet would say, rightly, that it never did
                    begun = machine.journal.with_name(f"{machine.journal.name}.{act.of.rpartition('/')[2]}")
                    await until(begun.exists, f"the script of {act.of} to begin")
                if act.what == "until":
                    looks.append(said(machine.report()))
            case "delete":
                await machine.host.stop("u", Request(at=1, reason="Deleted", message="deleted"))
            case "abandon":
                await machine.host.abandon("u", Request(at=1, reason="Abandoned", message=act.said))
            case "gone":
                await machine.gone()
    return [_line(*entry) for entry in machine.history() if entry[0] in EVENTS], looks, toys.journal


def _line(move: Any, unit: str, attempt: int, reason: str) -> str:
    return f"{EVENTS[move]}{f' {unit}#{attempt}' if unit else ''} {reason}".rstrip()
