"""One Secret with all outputs of a resource, for the pods of forks and for users.

It has the format of Service Binding's "provisioned service". It is in the namespace of its readers, its keys are
`<step>.<output>`, and the Resource names it in `.status.binding.name`. The Run owns it.
"""

import logging

from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, is_owned_by, secret_name
from dayfly.operator.outputs.attempt_secrets import outputs_secret, verified_values
from dayfly.operator.outputs.producers import find_producer
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Lifecycle, is_parent_unit, unit_id
from dayfly.spec.run import Result

log = logging.getLogger(__name__)

# Time without further requests for Secrets in a namespace that has refused one.
REFUSED_CACHE_MS = 10_000


class ResourceSecrets:
    """Secrets of resources in the namespaces of Sandboxes."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        # Namespaces that refuse access to Secrets, and until when they are not tried again.
        self._refused_until: dict[str, int] = {}

    async def ensure(self, run: RunObject, document: Lifecycle) -> str:
        """Return the name of the Secret in the Sandbox's namespace; empty if there are no outputs, or it is refused."""
        namespace, now = run.ledger.target.namespace, self._cluster.now()
        if now < self._refused_until.get(namespace, 0):
            return ""
        try:
            return await write_resource_secret(self._cluster, run, document, namespace)
        except errors.Forbidden as error:
            # The administrator has not granted access in this namespace, so readers of outputs get none. If a quota or
            # a webhook has refused this Secret, others in the namespace may still be accepted.
            if error.is_not_granted:
                self._refused_until[namespace] = now + REFUSED_CACHE_MS
            else:
                log.warning(
                    "the outputs of %s were not copied to a Secret of its namespace: %s", run.metadata.name, error
                )
        except (errors.NotFound, CannotRenderError):
            pass
        return ""


async def write_resource_secret(cluster: ClusterWatches, run: RunObject, document: Lifecycle, namespace: str) -> str:
    """Create the Secret with all outputs of a resource if it is missing. Return its name; empty without outputs.

    The outputs of a shared parent are not in it: only the steps of its holders read them.

    Raises:
        CannotRenderError: an output is missing or was changed, or another program's Secret has the name.
        errors.ApiError: the API server failed, or refuses the Secret.
    """
    client = cluster.client
    units = [(unit_id(document.resource, unit.name), unit) for unit in (*document.pre_start, *document.post_start)]
    own = [(step, unit) for step, unit in units if not is_parent_unit(step)]
    producers = [(step, unit, record) for step, unit in own if (record := run.ledger.unit(step)).outputs]
    name = secret_name(run, document)
    if not producers or await _exists(client, run, namespace, name):
        return name if producers else ""
    data: dict[str, bytes] = {}
    for step, unit, record in producers:
        source = await find_producer(cluster, run, document, unit)
        attempt = source.run.ledger.unit(source.name).attempt
        secret = names.outputs_name(source.run.ledger.uid, source.name, attempt)
        kept = await client.find(SECRETS, secret, names.namespace_of(source.unit))
        values = verified_values(
            (kept.data if kept else None) or {}, Result(outcome="succeeded", outputs=record.outputs)
        )
        if values is None:
            raise CannotRenderError(
                Reason.OUTPUTS_LOST, f"the Secret with the outputs of {step} is missing or was changed"
            )
        data |= {f"{unit.name}.{output}": value for output, value in values.items()}
    try:
        await client.create(SECRETS, outputs_secret(run, namespace, name, data), namespace)
    except errors.AlreadyExists:
        await _exists(client, run, namespace, name)
    return name


async def _exists(client: KubeClient, run: RunObject, namespace: str, name: str) -> bool:
    """Return whether the Secret exists. Outputs never change, so a peer's Secret is equivalent.

    Raises:
        CannotRenderError: another program's Secret has the name.
    """
    found = await client.find(SECRETS, name, namespace)
    if found is not None and not is_owned_by(found.metadata, run):
        raise CannotRenderError(Reason.NAME_CONFLICT, messages.foreign_object("Secret", namespace, name))
    return found is not None
