"""From a unit, its inputs' values and the machine's environment to the runner's work order. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from dayfly.spec.frames import encode
from dayfly.spec.identity import nonce, resource_id
from dayfly.spec.lifecycle import Input, Unit

ENV_INPUT_LIMIT = 64 * 1024
UNIT_OUTPUT_LIMIT = 512 * 1024
# Of the server's own environment nothing that steers Dayfly itself reaches a step.
_OURS = ("DAYFLY_", "SIGNADOT_")


class CannotRenderError(Exception):
    """The unit cannot be started with these values. `reason` is one word, the text one sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an order is made of, but the unit itself.

    `inputs` has the value of each input, None for one that is absent. `private` are directories whose new entries only
    this step may see; `environment` is the machine's.
    """

    run: str
    resource: str
    unit: str
    number: int
    inputs: Mapping[str, bytes | None]
    complete: bool
    environment: Mapping[str, str]
    isolation: str
    private: tuple[str, ...] = ()
    start_before: int = 0
    log: str = ""


def step_order(unit: Unit, attempt: Attempt) -> bytes:
    """The work order of an exec unit.

    Raises:
        CannotRenderError: an input that its place cannot hold.
    """
    assert unit.exec is not None, "only exec units run as processes"
    records = [
        *_head(attempt),
        ("script", unit.exec.script.encode()),
        ("run-ms", b"%d" % unit.timeouts.run_ms),
        ("grace-ms", b"%d" % unit.timeouts.grace_ms),
        ("unit-limit", b"%d" % UNIT_OUTPUT_LIMIT),
        *(("output", f"{output.name}\0{output.path}".encode()) for output in unit.outputs),
    ]
    env = {name.encode(): value.encode() for name, value in _machine(attempt.environment).items()}
    env |= {name.encode(): value.encode() for name, value in overlay_env(unit).items()}
    env |= {name.encode(): value.encode() for name, value in _built_in(unit, attempt).items()}
    for item in unit.inputs:
        value = attempt.inputs[item.name] or b""
        if item.as_.env:
            env[item.as_.env.encode()] = _env_value(item, value)
        if item.as_.path:
            records.append(("file", item.as_.path.encode() + b"\0" + value))
    return encode("dayfly-order", [*records, *_environment(env)])


def service_order(
    attempt: Attempt, *, command: tuple[str, ...], workdir: str, env: Mapping[str, bytes], grace_ms: int
) -> bytes:
    """The work order of a kept process: no outputs, no deadline."""
    machine = {name.encode(): value.encode() for name, value in _machine(attempt.environment).items()}
    return encode(
        "dayfly-order",
        [
            *_head(attempt),
            *(("arg", word.encode()) for word in command),
            *([("cwd", workdir.encode())] if workdir else []),
            ("run-ms", b"0"),
            ("grace-ms", b"%d" % grace_ms),
            *_environment(machine | {name.encode(): value for name, value in env.items()}),
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


def _head(attempt: Attempt) -> list[tuple[str, bytes]]:
    records = [
        ("nonce", nonce(attempt.run, attempt.unit, attempt.number).encode()),
        ("attempt", b"%d" % attempt.number),
        ("isolation", attempt.isolation.encode()),
        *(("private", path.encode()) for path in attempt.private),
    ]
    if attempt.log:
        records.append(("log", attempt.log.encode()))
    if attempt.start_before:
        records.append(("start-before-ms", b"%d" % attempt.start_before))
    return records


def _machine(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_OURS)}


def _built_in(unit: Unit, attempt: Attempt) -> dict[str, str]:
    assert unit.exec is not None, "only exec units run as processes"
    absent = [item.name for item in unit.inputs if attempt.inputs[item.name] is None]
    return {
        **unit.exec.env,
        "DAYFLY_RESOURCE_ID": resource_id(attempt.run, attempt.resource),
        "DAYFLY_ATTEMPT": str(attempt.number),
        "DAYFLY_ATTEMPT_NONCE": nonce(attempt.run, attempt.unit, attempt.number),
        "DAYFLY_OUTPUTS_COMPLETE": "true" if attempt.complete else "false",
        "DAYFLY_ABSENT_INPUTS": ",".join(absent),
    }


def _env_value(item: Input, value: bytes) -> bytes:
    if len(value) > ENV_INPUT_LIMIT:
        raise CannotRenderError(
            "InputTooLarge",
            f"input {item.name} has {len(value)} bytes; an environment variable takes at most {ENV_INPUT_LIMIT}: "
            "let the step read it as a file (as: {path: ...})",
        )
    if b"\0" in value:
        raise CannotRenderError(
            "InputNotText",
            f"input {item.name} contains a zero byte, which no environment variable can hold: "
            "let the step read it as a file (as: {path: ...})",
        )
    return value


def _environment(env: Mapping[bytes, bytes]) -> Iterable[tuple[str, bytes]]:
    return (("env", name + b"=" + value) for name, value in env.items())
