"""A route server: the current routing rules over REST and gRPC, for programs in the same network.

`rule_store` has the rules, `api_source` or `cluster_source` updates them, and `rest` and `grpc_server` serve them.
Clients need no keys, so every client that can connect can read the name, routing key and forks of each sandbox. It is
therefore a separate process with its own rights, and listens on loopback by default. It imports `client`, `kube`, `lib`
and the kinds of `operator.cluster`. `cli` starts it.
"""
