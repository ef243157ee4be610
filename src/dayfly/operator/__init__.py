"""The host in a cluster: controllers over Kubernetes objects.

`main` is the process. `reconciler` takes the turns, with `observe` (the facts of a run) and `effects` (what is done).
Only `sandboxes`, `route_groups` and `hooks`, the controllers for objects applied with kubectl, import `compile`.
Several operators are safe at once: caches only suggest, each claim is a compare-and-swap, and each effect names a
UID. `cli` calls the package (`dayfly operator`).
"""
