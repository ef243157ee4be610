"""A resource's outputs, all in one Secret for whoever reads them: its forks' pods, and people.

It has the shape of Service Binding's "provisioned service": it lies in the namespace of its readers, its keys are
`<step>.<output>`, and `.status.binding.name` of the Resource names it. It belongs to the Run, and goes when that does.
"""

import logging

from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, owned, resource_name
from dayfly.operator.outputs.attempt_secrets import matching, outputs_secret
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Lifecycle, unit_id
from dayfly.spec.run import Result

log = logging.getLogger(__name__)

# So long nobody asks again for Secrets in a namespace that has refused them.
BARRED_MS = 10_000


class Bindings:
    """Those in the namespaces of Sandboxes."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        # Namespaces in which we may not look at Secrets, and until when that is taken for granted.
        self._barred: dict[str, int] = {}

    async def of(self, run: RunObject, document: Lifecycle) -> str:
        """The name of the Secret in the Sandbox's namespace; empty if there are no outputs, or it may not be made."""
        namespace, now = run.ledger.target.namespace, self._cluster.now()
        if now < self._barred.get(namespace, 0):
            return ""
        try:
            return await bind(self._cluster.client, run, document, namespace)
        except errors.Forbidden as error:
            # The administrator has not granted this namespace: whoever asks for the outputs gets none. A quota or a
            # webhook has something against this one Secret, and tells nothing of others.
            if error.not_granted:
                self._barred[namespace] = now + BARRED_MS
            else:
                log.warning("outputs of %s are not bound: %s", run.metadata.name, error)
        except (errors.NotFound, CannotRenderError):
            pass
        return ""


async def bind(client: Client, run: RunObject, document: Lifecycle, namespace: str) -> str:
    """The name of the Secret with all outputs of a resource, made in that namespace if need be; empty if it has none.

    Raises:
        CannotRenderError: an output is not there as it was recorded, or the name is taken.
        errors.ApiError: the server cannot be asked, or refuses it.
    """
    units = [(unit_id(document.resource, unit.name), unit) for unit in (*document.pre_start, *document.post_start)]
    telling = [(step, unit, record) for step, unit in units if (record := run.ledger.unit(step)).outputs]
    name = resource_name(run, document.resource)
    if not telling or await _is_bound(client, run, namespace, name):
        return name if telling else ""
    data: dict[str, bytes] = {}
    for step, unit, record in telling:
        kept = await client.find(
            SECRETS, names.outputs_name(run.ledger.uid, step, record.attempt), names.namespace_of(unit)
        )
        values = matching((kept.data if kept else None) or {}, Result(outcome="succeeded", outputs=record.outputs))
        if values is None:
            raise CannotRenderError(
                Reason.OUTPUTS_LOST, f"the Secret with the outputs of {step} is gone or was altered"
            )
        data |= {f"{unit.name}.{output}": value for output, value in values.items()}
    try:
        await client.create(SECRETS, outputs_secret(run, namespace, name, data), namespace)
    except errors.AlreadyExists:
        await _is_bound(client, run, namespace, name)
    return name


async def _is_bound(client: Client, run: RunObject, namespace: str, name: str) -> bool:
    """Whether the Secret is there. Outputs never change, so one that a peer has made is as good as our own.

    Raises:
        CannotRenderError: the name is taken by somebody else's.
    """
    found = await client.find(SECRETS, name, namespace)
    if found is not None and not owned(found.metadata, run):
        raise CannotRenderError(
            Reason.NAME_CONFLICT, f"Secret {namespace}/{name} exists and does not belong to Dayfly; delete it"
        )
    return found is not None
