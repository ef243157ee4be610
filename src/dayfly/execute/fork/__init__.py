"""Forks: workloads derived from a baseline and kept in their desired state.

`render` derives the manifest and the Service that leads to it, with `patch` (which cannot choose what it costs) and
`rights` (which holds what came out against the baseline, by the list in `shape`); all are pure. `read` turns what is
there into a fact (pure), `run` creates the Deployment without replicas, scales it once its UID is claimed, keeps it
like its wish, and removes it in the foreground, so that it is gone only when its pods are. Zero replicas are a fork's
gate: without them nothing of it can run, and each later write names the UID, so a paused operator revives nothing.
`addresses` has what one fork is told of where the others answer, on every host.

It knows nothing of sandboxes, plugins or who makes the values that a fork reads. Called by the operator; `addresses`
also by the embedded host.
"""
