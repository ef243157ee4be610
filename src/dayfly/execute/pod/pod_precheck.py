"""Early check of steps: finds each step whose pod would be refused in every namespace.

It runs when a plugin is published and when a sandbox is created. The pod is rendered without inputs and checked with
the most permissive terms that a namespace can have. The terms of the actual namespace are checked when the pod is
created.
"""

import functools

import msgspec

from dayfly.execute.acquire.acquisition import find_template
from dayfly.execute.pod.policy import PodTerms, check, describe
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


def _objection(unit: Unit, *, inline: bool) -> str:
    """Check the step without the values of one sandbox, so that the result can be cached."""
    inputs = tuple(msgspec.structs.replace(each, value=None) for each in unit.inputs)
    script = msgspec.structs.replace(unit.exec, env={}) if unit.exec else None
    request = msgspec.structs.replace(unit.webhook, env={}) if unit.webhook else None
    bare = msgspec.structs.replace(unit, inputs=inputs, exec=script, webhook=request)
    return _check_encoded(msgspec.json.encode(bare), inline)


@functools.lru_cache(maxsize=1024)  # many sandboxes use the same plugin
def _check_encoded(encoded: bytes, inline: bool) -> str:
    unit = msgspec.json.decode(encoded, type=Unit)
    try:
        if unit.webhook is not None:
            unit = as_exec(unit, _SENDER, run="trial", name=unit.name, record=NEVER, absent=(), sensitive=())
    except CannotRenderError as error:
        return str(error)
    assert unit.exec is not None, "only steps are checked"
    namespace = unit.exec.namespace or "trial"
    attempt = PodAttempt(
        run="trial",
        run_name="trial",
        owner=_RUN | {"blockOwnerDeletion": False},
        resource="",
        unit=unit.name,
        number=1,
        inputs={each.name: None for each in unit.inputs},
        complete=False,
        namespace=namespace,
        runner=_RUNNER,
        restricted=False,
    )
    try:
        pod = render_pod(unit, attempt)
    except CannotRenderError as error:
        return str(error)
    terms = PodTerms(namespace=namespace, runner=_RUNNER, level="baseline", keys=frozenset({"*"}), inline=inline)
    found = check(pod, terms)
    return describe(found) if found else ""
