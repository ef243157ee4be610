"""The link between a server and its hosts: the messages, both ends, and the transport over HTTP.

A server's part of it is `server_end` (one `Link` for each host) with `host_state`; a host's part is `host_end`. Between
them is a `transport`: none where both are in one process; `dial` over `http` on the side of a host that connects to a
server. The package knows neither databases nor clusters: `server.sync.agents` stores messages, and each host implements
`host_interface`. Called by `control`, `embedded` and `operator`.
"""
