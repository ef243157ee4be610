"""Custom resources, shared caches, work queues, and the ledger as objects."""
