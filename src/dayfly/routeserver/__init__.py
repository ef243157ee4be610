"""Who may take this message? A route server: the routing rules that hold now, for programs in the same network.

Consumers of queues, and proxies of one's own, ask it by REST or hear each change by gRPC (surface 7.3). It decides
nothing: `board` has the rules, `from_api` or `from_cluster` keeps them up, and `grpc_server` and `rest` tell them. What
a rule is says `spec.routing.rules`.

It asks nobody who he is, as its clients have no key to show: whoever reaches it learns of each sandbox the name, the
routing key, and what it forks. So it is a process of its own, that nobody runs who does not want it, reads with rights
of its own, and listens on this machine alone unless told otherwise.

Stands upon `client`, `kube`, `server.app` (how HTTP is served) and the kinds of `operator.cluster`; called by `cli`
(`dayfly routeserver`).
"""
