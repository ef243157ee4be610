"""Who keeps the wishes? The REST API below /api/v2, the store of plugins, sandboxes and baselines; nothing runs here.

It compiles a wish into documents and hands them to a host through `link`, whoever that is and wherever. Of what a run
is doing it knows what its host has said to this process, and nothing of that is stored. It may not import
`execute` or a host. Called by `cli`, which assembles `dayfly up` out of this room and `embedded`, and `dayfly server`
out of this room alone.

An address stands in `routes` with the role that it asks for; a query is built by `rows`, for one organisation. Whoever
adds either has no way around that, and each table with a column `org` gets its wall in PostgreSQL by `migrations.belt`.
"""
