"""The cluster as seen by the whole operator: our kinds, shared caches, queues, and the ledger as objects."""
