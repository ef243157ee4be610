"""Who keeps the wishes? The REST API below /api/v2, the store of plugins, sandboxes and baselines; nothing runs here.

It compiles a wish into documents and hands them to a host through `control.port`, whoever that is; it asks the host for
reports and never remembers what a run is doing. It may not import `execute` or a host. Called by `cli`, which assembles
`dayfly up` out of this room and `embedded`.
"""
