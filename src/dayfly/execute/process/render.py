"""From a unit and its inputs' values to the runner's work order. Pure.

What a step has of the machine's environment, or of its image's, is the environment of its runner, and in no order.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dayfly.execute.state.access import PASSWORD
from dayfly.execute.work_order import built_in, env_record, identity_records, step_records
from dayfly.spec.frames import encode
from dayfly.spec.lifecycle import Unit


class OrderContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an order is made of, but the unit itself.

    `inputs` has the value of each input, None for one that is absent. `folder` is where a step begins, unless its image
    names another. `private` are directories whose new entries only this step may see. `sensitive` are those inputs
    whose values must not stand in the log. `state` is what a step with a state has in its environment, `cleared` what
    it must not inherit, `trace` what its own programs hang their spans below.
    """

    run: str
    resource: str
    unit: str
    number: int
    inputs: Mapping[str, bytes | None]
    complete: bool
    isolation: str
    folder: str = ""
    private: tuple[str, ...] = ()
    sensitive: frozenset[str] = frozenset()
    state: Mapping[str, str] = {}
    cleared: Mapping[str, str] = {}
    trace: str = ""
    start_before: int = 0
    log: str = ""


def step_order(unit: Unit, attempt: OrderContext) -> bytes:
    """The work order of an exec unit, of which each input fits its places."""
    assert unit.exec is not None, "only exec units run as processes"
    begins = ("cwd", attempt.folder.encode(errors="surrogateescape")), ("inherit-cwd", b"1")
    records = [*_head(attempt), *begins, *step_records(unit)]
    env = {name: value.encode() for name, value in {**attempt.cleared, **overlay_env(unit)}.items()}
    traced = {"TRACEPARENT": attempt.trace} if attempt.trace else {}
    env |= {name: value.encode() for name, value in {**traced, **built_in(unit, attempt), **attempt.state}.items()}
    for item in unit.inputs:
        value = attempt.inputs[item.name] or b""
        if item.as_.env:
            env[item.as_.env] = value
        if item.as_.path:
            records.append(("file", item.as_.path.encode() + b"\0" + value))
    return encode("dayfly-order", [*records, *_environment(env)])


def service_order(
    attempt: OrderContext, *, command: tuple[str, ...], workdir: str, env: Mapping[str, bytes], grace_ms: int
) -> bytes:
    """The work order of a kept process: no outputs, no deadline."""
    return encode(
        "dayfly-order",
        [
            *_head(attempt),
            *(("arg", word.encode()) for word in command),
            *([("cwd", workdir.encode())] if workdir else []),
            ("run-ms", b"0"),
            ("grace-ms", b"%d" % grace_ms),
            *_environment(env),
        ],
    )


def overlay_env(unit: Unit) -> dict[str, str]:
    """The constants that the pod template sets for the main container: a process has these as well."""
    assert unit.exec is not None, "only exec units have a pod template"
    found = {}
    for item in overlay_entries(unit):
        if "valueFrom" not in item:
            found[str(item.get("name", ""))] = str(item.get("value", ""))
    return found


def overlay_entries(unit: Unit) -> list[dict[str, object]]:
    """The environment list of the pod template's main container, as it was written."""
    template = unit.exec.pod_template if unit.exec else None
    spec = (template or {}).get("spec") or {}
    for container in spec.get("containers") or []:
        if container.get("name") == "main":
            return list(container.get("env") or [])
    return []


def _head(attempt: OrderContext) -> list[tuple[str, bytes]]:
    records = [
        *identity_records(attempt.run, attempt.unit, attempt.number, attempt.start_before),
        ("isolation", attempt.isolation.encode()),
        *(("private", path.encode()) for path in attempt.private),
        *(("mask", value) for name in sorted(attempt.sensitive) if (value := attempt.inputs[name])),
        *(("mask", value.encode()) for name, value in attempt.state.items() if name == PASSWORD),
        ("inherit-env", b"1"),
    ]
    if attempt.log:
        records.append(("log", attempt.log.encode(errors="surrogateescape")))
    return records


def _environment(env: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
    return (env_record(name, value) for name, value in env.items())
