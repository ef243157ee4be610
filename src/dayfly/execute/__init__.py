"""Execute units: one folder for each kind, and the turn that is the same on every host.

A turn observes, decides, commits and performs (`turn`). The folder of a kind has `render` (pure: what to start), `read`
(pure: the fact that an observation proves) and `run` (the side effects). The package reads sealed documents and never
imports `compile`, so a new plugin feature needs a new server but no new host. The hosts `embedded` and `operator` call
it.
"""
