"""A route server: the current routing rules over REST and gRPC, for programs in the same network.

`board` holds the rules; `from_api` or `from_cluster` keeps them current; `rest` and `grpc_server` serve them. Its
clients have no keys, so whoever reaches it can read the name, routing key and forks of each sandbox. It is therefore
a separate process with its own rights and listens on loopback by default. It imports `client`, `kube`, `lib` and the
kinds of `operator.cluster`; `cli` calls it.
"""
