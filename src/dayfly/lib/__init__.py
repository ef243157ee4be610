"""General parts: queue, rate limits, delivery, group commit, HTTP server with limits, task helpers, clock.

The package knows nothing of Dayfly and nothing of Kubernetes, so all hosts can share it. `kube`, `execute`,
`operator`, `embedded`, `server` and `cli` call it.
"""
