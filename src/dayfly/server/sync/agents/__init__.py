"""The server's end of the transport to hosts with an agent: a mailbox in the database for each cluster.

Each request may reach another replica, and replicas may crash, so no process keeps essential state. A message to a
host is stored before it is sent, with a number that is assigned under a lock. A message from a host is stored before
it is read. Each replica has a `Link` to each host and reads all messages; the replicas share one session and one
sequence of numbers. A replica that starts requests the inventory. There is no leader: if two replicas send the same
order, the host handles it as one.

`sessions` and `mailbox_rows` have the rules, without a clock. `mailbox_transport` implements
`link.transport.HostTransport` with them. `agent_service` polls for messages, and `agent_api` has the endpoints for
agents, which authenticate with cluster tokens.
"""
