"""The server: the REST API, the database and the synchronisation with hosts.

It compiles sandboxes and sends the documents to hosts through `link`; it executes nothing itself. The state of a run
comes from its host and is not stored. `http.route_table` declares every route with its role, and `db.rows` builds
every query for one organisation. The package must not import `execute` or a host; `cli` calls it (`dayfly up`,
`dayfly server`).
"""
