"""The exec unit that runs the sender of a webhook. Pure."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from dayfly.execute.webhook.exit_codes import ORDER
from dayfly.execute.webhook.request import UnfitError, origin_of
from dayfly.execute.work_order import CannotRenderError, Program
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import idempotency_key
from dayfly.spec.lifecycle import Unit, UnitOutput
from dayfly.spec.run import UnitRecord
from dayfly.spec.scalars import jsonpath
from dayfly.spec.scalars.duration import milliseconds
from dayfly.spec.steps.webhook import ANSWER_MS, BUILT_IN_OUTPUTS, CONNECT_MS, DEFINITE, secret_variable, secrets


class SenderSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The setup of a host for senders: the `command`, the `image` of the pod, and the `folder` for files.

    `allowed` are servers (`host:port`) that an administrator permits at any address.
    """

    command: tuple[str, ...]
    folder: str
    image: str = ""
    allowed: frozenset[str] = frozenset()


def as_exec(
    unit: Unit,
    place: SenderSetup,
    *,
    run: str,
    name: str,
    record: UnitRecord,
    absent: Iterable[str],
    sensitive: Iterable[str],
) -> Unit:
    """Return an exec unit that runs the sender.

    Args:
        unit: The webhook.
        place: How the sender runs.
        run: The run's identity.
        name: The unit's name in the run.
        record: The unit's record in the ledger, with the results of earlier attempts.
        absent: The inputs without a value.
        sensitive: The inputs whose values the log masks.

    Raises:
        CannotRenderError: No attempt could send the request.
    """
    assert unit.webhook is not None, "the unit is a webhook"
    headers = unit.webhook.request.get("headers") or {}
    named = [(key, value, secret_variable(key, value)) for key, value in dict.fromkeys(secrets(headers))]
    outputs = [_output(output, place) for output in unit.outputs]
    files = {each: f"{place.folder}/webhook.{each}" for each in (*BUILT_IN_OUTPUTS, DEFINITE)}
    order = _order(unit, place.allowed, sensitive=set(sensitive)) | {
        "key": key_of(run, name, record),
        "absent": sorted(absent),
        "secrets": named,
        "outputs": outputs,
        "location": files["location"],
        "definite": files[DEFINITE],
    }
    env = {**unit.webhook.env, ORDER: json.dumps(order, ensure_ascii=False, separators=(",", ":"))}
    declared = {output.name: output for output in unit.outputs}
    return msgspec.structs.replace(
        unit,
        outputs=(
            *(msgspec.structs.replace(declared[each["name"]], path=each["path"]) for each in outputs),
            *(UnitOutput(name=each, path=path) for each, path in files.items()),
        ),
        exec=Program(
            command=place.command,
            image=place.image,
            namespace=unit.webhook.namespace,
            pod_template=_template(named),
            env=env,
        ),
    )


def key_of(run: str, name: str, record: UnitRecord) -> str:
    """Return the idempotency key. It changes only after a response that certainly refused the request."""
    answered = record.outputs.get(DEFINITE)
    return idempotency_key(run, name, answered.digest if answered else "")


def secret_variables(unit: Unit) -> list[str]:
    """Return the environment variables of the sender that have values of Secrets."""
    headers = unit.webhook.request.get("headers") or {} if unit.webhook else {}
    return [secret_variable(*each) for each in dict.fromkeys(secrets(headers))]


def _order(unit: Unit, allowed: frozenset[str], *, sensitive: set[str]) -> dict[str, Any]:
    """Return the part of the sender's order that depends only on the document."""
    assert unit.webhook is not None
    written = unit.webhook.request
    return {
        "request": written,
        "allowed": _is_allowed(written["url"], allowed),
        "idempotent": unit.retry.idempotent,
        "seconds": _seconds(unit.timeouts.run_ms),
        "limits": _limits(written.get("timeouts") or {}),
        "inputs": {item.name: item.as_.env for item in unit.inputs},
        "sensitive": [item.as_.env for item in unit.inputs if item.name in sensitive],
        "steps": {query: jsonpath.steps(query) for query in _queries(unit)},
    }


def _output(output: UnitOutput, place: SenderSetup) -> dict[str, Any]:
    return {
        "name": output.name,
        "path": f"{place.folder}/webhook.out.{output.name}",
        "query": output.json_path,
        "header": output.header,
        "status": output.status,
        "sensitive": output.sensitive,
    }


def _queries(unit: Unit) -> set[str]:
    assert unit.webhook is not None, "the unit is a webhook"
    written = unit.webhook.request
    poll, find = written.get("poll") or {}, written.get("find") or {}
    comparisons = [each for each in (poll.get("until"), poll.get("failed"), find.get("when")) if each]
    found = {output.json_path for output in unit.outputs} | {each["path"] for each in comparisons}
    return (found | {poll.get("location", "")}) - {""}


def _limits(written: dict[str, str]) -> dict[str, float]:
    return {
        field: (milliseconds(written[field]) if written.get(field) else default) / 1000
        for field, default in (("connect", CONNECT_MS), ("answer", ANSWER_MS))
    }


def _seconds(run_ms: int) -> float:
    """Return the sender's time limit, which is shorter than the runner's, so that the sender reports its own result."""
    return max(run_ms / 1000 - 2, run_ms / 1000 * 0.8)


def _is_allowed(url: str, allowed: frozenset[str]) -> bool:
    try:
        origin = origin_of(url)
    except UnfitError as unfit:
        raise CannotRenderError(Reason.ADDRESS_REFUSED, str(unfit)) from None
    return f"[{origin.host}]:{origin.port}" in allowed or f"{origin.host}:{origin.port}" in allowed


def _template(named: list[tuple[str, str, str]]) -> dict[str, Any] | None:
    if not named:
        return None
    env = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for name, key, variable in named
    ]
    return {"spec": {"containers": [{"name": "main", "env": env}]}}
