"""Execute units: one folder for each kind, and the turn that is the same on every host.

A turn observes, decides, commits and performs (`turn`). A kind's folder has `render` (pure: what to start), `read`
(pure: the fact that an observation proves) and `run` (the side effects). The package understands sealed documents and
never imports `compile`, so a new feature of plugins needs a new server and no new host. The hosts `embedded` and
`operator` call it.
"""
