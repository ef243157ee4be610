"""A server under load, with the agents of 50 clusters and ten thousand sandboxes that change all the time.

The server is `dayfly server`, on SQLite and on PostgreSQL. Its clients are the operator's own end of the link
(`link.dialer`, `link.host_end`) over a host that does no work (`hosts`). They share one process with the clients that
create sandboxes (`load`). Another process reads and measures (`suite`). `latency` measures one sandbox at a time on
an idle server.
"""
