"""The server: the REST API, the database and the synchronisation with hosts.

It compiles sandboxes and hands the documents to hosts through `link`; nothing runs here. What a run is doing is known
only from its host and is not stored. Every route is declared in `http.route_table` with its role, and every query is
built by `db.rows` for one organisation. The package may not import `execute` or a host; `cli` calls it (`dayfly up`,
`dayfly server`).
"""
