"""The cluster as all parts of the operator see it: our own kinds, the shared caches with their queues, the ledger."""
