"""Who turns the wheel in a cluster? Controllers over Kubernetes objects: the same turns as on the embedded host.

`runs` is the ledger as cluster-scoped objects, changed by compare-and-swap alone. `lifecycles` takes the turns, with
`gather` (the world of a run), `effects` (what is done), `making` (pods, held to the policy), `values` (outputs) and
`targets` (birth and death): it understands sealed documents and never a plugin. `sandboxes` is the optional front that
compiles wishes applied with kubectl; it alone may import `compile`. `sweeper` finds what no ledger speaks of; `speak`,
`resources` and `metrics` say how things stand, and nothing reads that back. `main` is the process.

Safe with several operators at once: caches only suggest, absence is believed after a quorum read alone, every claim is
a compare-and-swap, every effect names a UID. Called by `cli` (`dayfly operator`).
"""
