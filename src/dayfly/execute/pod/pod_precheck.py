"""Trial pods of steps: each step whose pod would be refused in every namespace, and the objects that steps read.

The check runs when a plugin is published and when a sandbox is created. The pod is rendered without inputs and checked
with the most permissive terms that a namespace can have. The terms of the actual namespace are checked when the pod is
created.
"""

import functools
from typing import Any

import msgspec

from dayfly.execute.acquire.acquisition import find_template
from dayfly.execute.pod.policy import PodTerms, Reference, check, describe, references
from dayfly.execute.pod.render import PodAttempt, render_pod
from dayfly.execute.webhook.render import SenderSetup, as_exec
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.lifecycle import STEP_KINDS, Lifecycle, LifecycleEvent, Unit
from dayfly.spec.run import NEVER

_RUN = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "trial", "uid": "trial"}
_RUNNER = "dayfly-runner-trial"
_SENDER = SenderSetup(command=("trial",), folder="/trial", image="trial")


def objections(document: Lifecycle) -> list[str]:
    """Return a message for each step whose pod would always be refused, also of its pool member or shared parent.

    Raises:
        DocumentsRefusedError: A unit of kind acquire does not match its template.
    """
    steps = (unit for event in LifecycleEvent for unit in document.units(event) if unit.kind in STEP_KINDS)
    inline = document.origin.inline
    found = [(unit.name, _objection(unit, inline=inline)) for unit in steps]
    refused = [f"the pod of step {name} is refused: {message}" for name, message in found if message]
    template = find_template(document)
    return refused + [each for above in (template.documents if template else ()) for each in objections(above)]


def read_objects(unit: Unit) -> list[Reference]:
    """Return the objects that a step reads in the namespace of its pod; empty if it has no valid pod."""
    try:
        return references(_trial_pod(_encode(unit)))
    except CannotRenderError:
        return []


def _objection(unit: Unit, *, inline: bool) -> str:
    return _check_encoded(_encode(unit), inline)


def _encode(unit: Unit) -> bytes:
    """Encode a step without the values of one sandbox, so that results can be cached."""
    inputs = tuple(msgspec.structs.replace(each, value=None) for each in unit.inputs)
    script = msgspec.structs.replace(unit.exec, env={}) if unit.exec else None
    request = msgspec.structs.replace(unit.webhook, env={}) if unit.webhook else None
    return msgspec.json.encode(msgspec.structs.replace(unit, inputs=inputs, exec=script, webhook=request))


@functools.lru_cache(maxsize=1024)  # many sandboxes use the same plugin
def _check_encoded(encoded: bytes, inline: bool) -> str:
    try:
        pod = _trial_pod(encoded)
    except CannotRenderError as error:
        return str(error)
    namespace = pod["metadata"]["namespace"]
    terms = PodTerms(namespace=namespace, runner=_RUNNER, level="baseline", keys=frozenset({"*"}), inline=inline)
    found = check(pod, terms)
    return describe(found) if found else ""


def _trial_pod(encoded: bytes) -> dict[str, Any]:
    """Render the pod of an encoded step without inputs.

    Raises:
        CannotRenderError: it has no valid pod.
    """
    unit = msgspec.json.decode(encoded, type=Unit)
    if unit.webhook is not None:
        unit = as_exec(unit, _SENDER, run="trial", name=unit.name, record=NEVER, absent=(), sensitive=())
    assert unit.exec is not None, "only steps are checked"
    attempt = PodAttempt(
        run="trial",
        run_name="trial",
        owner=_RUN | {"blockOwnerDeletion": False},
        resource="",
        unit=unit.name,
        number=1,
        inputs={each.name: None for each in unit.inputs},
        complete=False,
        namespace=unit.exec.namespace or "trial",
        runner=_RUNNER,
        restricted=False,
    )
    return render_pod(unit, attempt)
