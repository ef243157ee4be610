"""Who turns the wheel in a cluster? Controllers over Kubernetes objects: the same turns as on the embedded host.

`main` is the process. `reconciler` takes the turns, with `observe` (the world of a run) and `effects` (what is done):
it understands sealed documents and never a plugin. `sweeper` finds what no ledger speaks of. The rest stands in wings:
`cluster` (our kinds, the caches, the ledger as cluster-scoped objects, changed by compare-and-swap alone), `targets`
(birth and death of runs), `pods`, `outputs` and `forks` (what is made), `status` (how things stand, which nothing reads
back), `monitoring`, and `front`: the optional one that compiles wishes applied with kubectl, and alone may import
`compile`.

Safe with several operators at once: caches only suggest, absence is believed after a quorum read alone, every claim is
a compare-and-swap, every effect names a UID. Called by `cli` (`dayfly operator`).
"""
