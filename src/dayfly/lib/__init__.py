"""General parts: a queue of keys (`queue`), rate limits (`pace`), delivery until confirmed (`delivery`), group commit
(`group_commit`), an HTTP server with limits (`http_server`), helpers for tasks (`tasks`) and the clock (`clock`).

This package knows nothing of Dayfly and nothing of Kubernetes. So all hosts use the same queue, although only the
operator has a Kubernetes client. Called by `kube`, `execute`, `operator`, `embedded`, `control` and `cli`.
"""
