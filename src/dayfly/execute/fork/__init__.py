"""Forks: workloads derived from a baseline and kept in their desired state.

- `render`: derives the manifest and the Service of a fork (pure)
- `patch`: applies the patch of a fork, with bounded CPU time and memory (pure)
- `rights`: compares the result with the baseline, by the allow-list in `shape` (pure)
- `read`: turns the Deployment and its pods into a fact (pure)
- `run`: creates, scales, updates and deletes forks
- `addresses`: the addresses of other forks in environment variables, for both hosts (pure)

A fork is created with zero replicas and scaled after the ledger has claimed its UID. With zero replicas nothing can
run, and each later write names the UID, so a delayed operator cannot revive a deleted fork. A fork is deleted in the
foreground, so the Deployment is gone only when its pods are.

This package does not know sandboxes or plugins.
"""
