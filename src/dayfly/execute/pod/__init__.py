"""Steps as pods: one container with the image of the user and the runner as its first process.

`render` makes the manifest (gated, with our finalizer), `policy` holds the merged pod to an allow-list, `read` turns a
pod into a fact, `run` creates, lets go, fences, cancels and releases. Names are derived (`names`).
"""
