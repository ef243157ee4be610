"""Webhooks in a cluster: each is sent by a pod of ours, which is prepared, let go, seen and ended as any step's."""

from dayfly.execute.executor import Known
from dayfly.operator.executors.step_executor import PodStepExecutor
from dayfly.operator.run_memory import Sight
from dayfly.spec.lifecycle import Kind


class PodWebhookExecutor(PodStepExecutor):
    """Requests to servers. Their pods are among those that the steps' own executor looks at, and clears away."""

    kind: str = Kind.WEBHOOK

    async def observe(self, sight: Sight) -> None:
        """One look at the pods tells of all of them."""

    def known(self, _sight: Sight) -> Known:
        return Known()

    async def clear(self, sight: Sight) -> None:
        """One look at the pods clears all of them away."""

    async def close(self) -> None:
        """The followers are closed once."""
