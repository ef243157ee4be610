"""The link between a server and its hosts: messages, both ends, and the transport over HTTP.

The server's end is `server_end`, with one `Link` and one `host_state` for each host; a host's end is `host_end`.
`dialer` over `http` is the transport of a host that connects to a server; in one process no transport is needed. The
package knows neither databases nor clusters: `server.sync.agents` stores messages, and each host implements
`host_interface`. `server`, `embedded` and `operator` call it.
"""
