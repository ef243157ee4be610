"""Values that the forks of a run provide to its steps: name, host, port and readiness, read from the caches."""

from dayfly.execute.fork import read
from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import first_port, fork_name
from dayfly.execute.inputs import ForkAddressUnknownError, Forks
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, is_owned_by
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Running
from dayfly.spec.lifecycle import ForkValue, fork_id
from dayfly.spec.run import ALIVE
from dayfly.spec.steps.value_from import HOST, NAME, PORT, READY, fill_expression, placeholders


def fork_evaluator(cluster: ClusterWatches, run: RunObject) -> Forks:
    """Return a function that evaluates an expression over a fork of this run.

    It raises `ForkAddressUnknownError` if the fork or its address does not exist.
    """

    def evaluate(value: ForkValue) -> str:
        of = value.fork_of
        own = fork_name(run.ledger.target.name, run.ledger.uid, of.namespace, of.name)
        record, seen = run.ledger.unit(fork_id(of)), cluster.forks.get(own, of.namespace)
        if record.state not in ALIVE or seen is None or seen.metadata.uid != record.ref:
            raise ForkAddressUnknownError(Reason.WAITING_FOR_FORKS, f"{fork_id(of)} does not exist yet")
        leads = cluster.services.get(own, of.namespace)
        host, port = service_address(leads) if leads is not None and is_owned_by(leads.metadata, run) else ("", 0)
        known = {NAME: own, HOST: host, PORT: str(port or ""), READY: "true" if _answers(cluster, seen) else "false"}
        if missing := [word for word in placeholders(value.expression) if not known[word]]:
            what = f"no Service with a port leads to the baseline {of.namespace}/{of.name}, so its fork has no address"
            raise ForkAddressUnknownError(Reason.FORK_WITHOUT_SERVICE, f"{{{{.{missing[0]}}}}}: {what}")
        return fill_expression(value.expression, known)

    return evaluate


def service_address(service: ForkService) -> tuple[str, int]:
    """Return the host and port of a fork's Service in the cluster; port 0 if it has none."""
    return f"{service.metadata.name}.{service.metadata.namespace}.svc", first_port(service)


def _answers(cluster: ClusterWatches, seen: read.ForkDeployment) -> bool:
    """Return whether the fork's pods are ready and up to date."""
    fact = read.read_fork(seen, (), cluster.now())
    return isinstance(fact, Running) and fact.ready
