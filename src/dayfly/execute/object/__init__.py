"""Units that are Kubernetes objects.

The API server ensures that a create runs at most once: two objects cannot have the same name. An object carries the
token of its attempt until the ledger has its UID. From then on only the object with that UID belongs to the attempt.

Kinds that can be created at rest (a suspended Job, a Deployment without replicas) are, and a later write by UID
releases them. They need no finalizer: a late create does nothing until the garbage collector deletes the object. Other
kinds carry Dayfly's finalizer, so that the name stays taken until the run has ended.
"""
