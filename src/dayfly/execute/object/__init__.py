"""Units that are Kubernetes objects.

Once-only is the API server's own doing: a name is taken once. An object carries the token of its attempt until the
ledger holds its UID; from then on it is that very object, and another one of its name is nobody's. What can be born at
rest is (a suspended Job, a Deployment without replicas) and is let go by UID; it needs no finalizer, for what comes
late does nothing until the garbage collector has it. What cannot carries our finalizer, so that its name stays taken
until the run is over.
"""
