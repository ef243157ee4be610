"""General asynchronous work: a queue of keys (`queue`), rate limits (`pace`), delivery until confirmed (`delivery`),
group commit (`group_commit`) and helpers for tasks (`tasks`).

This package knows nothing of Dayfly and nothing of Kubernetes, only the event loop and its clock. So all hosts use the
same queue, although only the operator has a Kubernetes client. Called by `kube`, `execute`, `operator`, `embedded`,
`control` and `cli`.
"""
