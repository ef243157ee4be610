"""An exec unit as a pod: one container with the user's image, the runner as its first process; no init, no sidecar.

`render` makes the manifest (gated, with our finalizer), `policy` holds the merged pod to an allow-list, `read` turns a
pod into a fact, `run` creates, lets go, fences, cancels and releases. Names are derived (`names`).
"""
