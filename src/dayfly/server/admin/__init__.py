"""Organisations, clusters, keys, cluster tokens, page sessions and the audit log."""
