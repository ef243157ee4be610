"""A Kubernetes API server in this process: what the real one promises, and everything that may go wrong on the way.

    cluster = FakeCluster(seed=7, extra=[custom("dayfly.dev", "v1alpha1", "runs", "Run", namespaced=False, status=False)])
    client = Client(cluster.transport("operator-a"))       # the product's own client; no socket
    run(main(client))                                       # in virtual time: a day passes in milliseconds

It keeps versions, conflicts, UID and version preconditions, finalizers, graceful deletion of pods, scheduling gates,
status subresources, generateName, dry runs, selectors, paged lists, watches with history (`cluster.store.compact()`
makes older ones end with 410), garbage collection by owner, the end of namespaces, server-side apply for custom kinds,
and admission hooks (`cluster.admission`). There is no kubelet and no scheduler: the test plays them, with a client of its
own (POST to `binding`, patches of `status`, deletes with grace 0) and `cluster.log_of(pod, namespace).write(...)`.
`deployments.Deployments(cluster).run()` plays the Deployment controller, and the nodes for its pods.

Faults: `cluster.faults` sees every request and may order a `Fault` (see `faults`): `at_write(n, harm)` to enumerate,
`at_random(seed, rate, harms)` for schedules. A `Crash` is no `Exception`: catch it around the client's tasks, throw them
away and begin anew with another `cluster.transport(...)`. `transport.freeze()` makes one client live in the past,
`transport.view.delay` its watches late. For oracles: `cluster.objects(plural)`, `cluster.store.after(kind, version)`
(every version ever written), `cluster.calls`, `cluster.writes`.

Same seed, same order of requests: same answers. `test_against_real.py` plays the same random requests to this and to a
real API server and compares the answers.
"""

from kube.fake.clock import DeadlockError, VirtualLoop, rest, run
from kube.fake.cluster import FakeCluster, FakeTransport
from kube.fake.faults import WRITE_HARMS, Call, Crash, Fault, Harm, at_random, at_write
from kube.fake.front import serving
from kube.fake.kinds import Kind, custom
from kube.fake.refusals import Refusal

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
