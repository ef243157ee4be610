"""The runner's work order for a unit, and the directories of this machine that are private for its step.

A work order does not contain the environment of the machine or image: the runner inherits it.
"""

import os
from collections.abc import Iterable, Mapping

import msgspec

from dayfly.execute.state.access import PASSWORD
from dayfly.execute.work_order import built_in, env_record, identity_records, step_records
from dayfly.spec.frames import encode
from dayfly.spec.lifecycle import Unit


class OrderContext(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that an order is rendered for, without its unit.

    `inputs` has the value of each input, None if it is absent. `folder` is the working directory, unless the image has
    another. `private` are directories in which only this step may see its new entries. The log masks the values of
    `sensitive` inputs. `state` has the variables of a step with a Terraform state, and `cleared` variables that it must
    not inherit. `trace` is the `traceparent` for spans of the step. `resource_id` and `resource_token`
    are as in `StepAttempt`.
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
    resource_id: str | None = None
    resource_token: str = ""


def step_order(unit: Unit, attempt: OrderContext) -> bytes:
    """Return the work order of an exec unit. Its inputs must have passed `inputs.check`."""
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
    """Return the work order of a process that is kept running: without outputs and deadline."""
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
    """Return the constant variables of the pod template's main container. A process has them too."""
    assert unit.exec is not None, "only exec units have a pod template"
    found = {}
    for item in overlay_entries(unit):
        if "valueFrom" not in item:
            found[str(item.get("name", ""))] = str(item.get("value", ""))
    return found


def overlay_entries(unit: Unit) -> list[dict[str, object]]:
    """Return the environment list of the pod template's main container, as written."""
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


def usual_folders() -> tuple[str, ...]:
    """Return the machine's folders for temporary files, which are private for each step."""
    return tuple(path for path in ("/tmp", "/var/tmp") if os.path.isdir(path))  # noqa: S108 - they become private


def private_directories(unit: Unit) -> tuple[str, ...]:
    """Return the directories in which only this step may see its new entries.

    These are the usual ones, and for each declared path its nearest existing parent.
    """
    found = set(usual_folders())
    for path in declared_paths(unit):
        parent = os.path.dirname(path)
        while parent not in found and not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        found.add(parent)
    return tuple(sorted(found))


def declared_paths(unit: Unit) -> frozenset[str]:
    """Return the absolute paths of inputs and outputs.

    Without isolation, two steps cannot use one path concurrently.
    """
    paths = [output.path for output in unit.outputs] + [item.as_.path for item in unit.inputs]
    return frozenset(filter(None, paths))
