"""`dayfly plugin test`: runs the scenarios of `testing` on this machine or in a cluster.

`dayfly.testing` builds and judges the scenarios, and is pure. This package creates the sandboxes and causes the faults.
"""
