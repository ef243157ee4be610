"""How work waits its turn: a queue of keys (`queue`), how many a second may pass (`pace`), and what is sent until
somebody has taken it (`delivery`).

The lowest room. It knows nothing of ours and nothing of Kubernetes, only the event loop and its clock, so each host has
its runs wait in the same queue: the operator, which needs back-off and urgencies, and the embedded host, which has
no client of Kubernetes installed. Called by `kube`, `operator`, `embedded` and `control`.
"""
