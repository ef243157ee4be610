"""A Kubernetes API server in this process, with the promises of a real one and with faults on demand.

    cluster = FakeCluster(seed=7, extra=[custom("dayfly.dev", "v1alpha1", "runs", "Run", namespaced=False, status=False)])
    client = Client(cluster.transport("operator-a"))       # the product's own client; no socket
    run(main(client))                                       # in virtual time: a day passes in milliseconds

It supports versions, conflicts, UID and version preconditions, finalizers, graceful deletion of pods, scheduling gates,
status subresources, generateName, dry runs, selectors, paged lists, watches with history (`cluster.store.compact()`
expires older versions), garbage collection by owner, deletion of namespaces, server-side apply for custom kinds, and
admission hooks (`cluster.admission`). There is no kubelet and no scheduler: the test plays them with a second client
(POST to `binding`, patches of `status`, deletes with grace 0) and `cluster.log_of(pod, namespace).write(...)`.
`deployments.Deployments(cluster).run()` plays the Deployment controller and the nodes of its pods.

Faults: the hook `cluster.faults` is called with every request and may order a `Fault` (see `faults`). `at_write(n, harm)`
enumerates faults, `at_random(seed, rate, harms)` makes schedules. A `Crash` is not an `Exception`: catch it around the
client's tasks, drop them and start again with another `cluster.transport(...)`. `transport.freeze()` makes the reads of a
client stale, `transport.view.delay` delays its watches. For oracles: `cluster.objects(plural)`,
`cluster.store.after(kind, version)` (all versions that were ever written), `cluster.calls`, `cluster.writes`.

The same seed and order of requests give the same responses. `test_against_real.py` sends the same random requests to the
fake and to a real API server and compares the responses.
"""

from tests.kube.fake.clock import DeadlockError, VirtualLoop, rest, run
from tests.kube.fake.cluster import FakeCluster, FakeTransport
from tests.kube.fake.faults import WRITE_HARMS, Call, Crash, Fault, Harm, at_random, at_write
from tests.kube.fake.front import serving
from tests.kube.fake.kinds import Kind, custom
from tests.kube.fake.refusals import Refusal

__all__ = [
    "WRITE_HARMS",
    "Call",
    "Crash",
    "DeadlockError",
    "FakeCluster",
    "FakeTransport",
    "Fault",
    "Harm",
    "Kind",
    "Refusal",
    "VirtualLoop",
    "at_random",
    "at_write",
    "custom",
    "rest",
    "run",
    "serving",
]
