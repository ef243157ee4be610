"""Who keeps the wishes? The REST API below /api/v2, the store of plugins, sandboxes and baselines; nothing runs here.

It compiles a wish into documents and hands them to a host through `control.port`, whoever that is and wherever. Of what
a run is doing it knows what its host has said to this process, and nothing of that is stored. It may not import
`execute` or a host. Called by `cli`, which assembles `dayfly up` out of this room and `embedded`.
"""
