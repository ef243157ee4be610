"""How messages travel between this server and hosts that dial it: a mailbox for each cluster, in tables alone.

Whoever serves a request is one of several replicas, and may be gone at the next. So nothing that matters lies in a
process: what is to go to a host is a row before it goes (`mailbox`), numbered for its cluster under a lock, and what a
host says is a row before anybody heeds it. Each replica has a `Link` of its own to each host (`host`), and reads the
rows of all; they share one session and one sequence of numbers, which the cluster's row holds. A replica that begins
asks for the inventory. There is no lease and no owner, for nobody has anything that another
one lacks: an order that two of them give is one order to the host.

`mailbox` holds the rules and no clock, `host` is `link.transport.Host` over it, `agents` looks for what is new and
serves the addresses that hosts dial. It knows clusters by their tokens; who hands those out is not its business.
"""
