"""Who turns the wheel in a cluster? Controllers over Kubernetes objects: the same turns as on the embedded host.

`runs` is the ledger as cluster-scoped objects, changed by compare-and-swap alone. `lifecycles` takes the turns: it
understands sealed documents and never a plugin. `sandboxes` is the optional front that compiles wishes applied with
kubectl; it alone may import `compile`. Safe with several operators at once: caches only suggest, every claim is a
compare-and-swap, every effect names a UID. Called by `cli` (`dayfly operator`).
"""
