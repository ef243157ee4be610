"""The host in a cluster: controllers over Kubernetes objects.

`main` is the process. `reconciler` takes turns over runs: `observe` collects the facts, `effects` performs the effects.
Only `catalog`, and the controllers for objects applied with kubectl (`sandboxes`, `route_groups` and `hooks`), import
`compile`.
Several active operators are safe: decisions from outdated caches fail, since each claim is a compare-and-swap and each
effect names a UID. `cli` calls the package (`dayfly operator`).
"""
