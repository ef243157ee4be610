"""A server for many, under load: 50 clusters' agents and ten thousand sandboxes of theirs, which change all the time.

The server is `dayfly server` as it is installed, on SQLite and on PostgreSQL. What dials it is the operator's own end
of the link (`link.dial`, `link.host_end`) over a host that does no work (`hosts`); it shares one process
with whoever wishes for sandboxes (`crowd`). Whoever reads and takes the time is another process (`suite`).
`latency` measures one sandbox at a time on an idle server.
"""
