"""The server's side of the transport to hosts that dial in: a mailbox in tables for each cluster.

Any of several replicas may serve a request, and may be gone at the next. So no process keeps anything that matters: a
message to a host is a row before it is sent, numbered for its cluster under a lock, and a message from a host is a row
before it is read. Each replica has a `Link` to each host, and reads all rows; replicas share one session and one
sequence of numbers. A replica that starts asks for the inventory. There is no leader: an order that two replicas give
is one order to the host.

`mailbox` has the rules and no clock, `mailbox_transport` is `link.transport.Host` over it, `agents` polls for messages
and serves the addresses that hosts dial. It identifies clusters by their tokens.
"""
