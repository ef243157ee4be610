"""Could a pod of this step ever be? Asked before anybody waits for one: of a published plugin, and of a new sandbox.

The pod is made without inputs and held to the most that any namespace is granted. What is refused then is refused
always; what passes may still be too much for the namespace it is to run in, which is seen when it is made.
"""

import functools

import msgspec

from dayfly.execute.pod.policy import PodTerms, check, described
from dayfly.execute.pod.render import PodAttempt, pod
from dayfly.execute.webhook.render import SenderSetup, as_exec
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.lifecycle import STEP_KINDS, Lifecycle, LifecycleEvent, Unit
from dayfly.spec.run import NEVER

_RUN = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "trial", "uid": "trial"}
_RUNNER = "dayfly-runner-trial"
_SENDER = SenderSetup(command=("trial",), folder="/trial", image="trial")


def objections(document: Lifecycle) -> list[str]:
    """A sentence for each step of which no pod may be made; most documents have none."""
    steps = (unit for event in LifecycleEvent for unit in document.units(event) if unit.kind in STEP_KINDS)
    inline = document.origin.inline
    found = [(unit.name, _objection(unit, inline=inline)) for unit in steps]
    return [f"the pod of step {name} may not be made: {said}" for name, said in found if said]


def _objection(unit: Unit, *, inline: bool) -> str:
    """Judged without what is one sandbox's alone."""
    inputs = tuple(msgspec.structs.replace(each, value=None) for each in unit.inputs)
    script = msgspec.structs.replace(unit.exec, env={}) if unit.exec else None
    request = msgspec.structs.replace(unit.webhook, env={}) if unit.webhook else None
    bare = msgspec.structs.replace(unit, inputs=inputs, exec=script, webhook=request)
    return _judged(msgspec.json.encode(bare), inline)


@functools.lru_cache(maxsize=1024)  # the same plugin in each of a thousand sandboxes
def _judged(encoded: bytes, inline: bool) -> str:
    unit = msgspec.json.decode(encoded, type=Unit)
    try:
        if unit.webhook is not None:
            unit = as_exec(unit, _SENDER, run="trial", name=unit.name, record=NEVER, absent=(), sensitive=())
    except CannotRenderError as error:
        return str(error)
    assert unit.exec is not None, "only what is run becomes a pod"
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
        made = pod(unit, attempt)
    except CannotRenderError as error:
        return str(error)
    most = PodTerms(namespace=namespace, runner=_RUNNER, level="baseline", keys=frozenset({"*"}), inline=inline)
    found = check(made, most)
    return described(found) if found else ""
