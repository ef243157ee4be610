"""Benchmarks in a cluster. As in the parent package, each measures a promise and a yardstick in the same run.

`place` starts a separate cluster with `testcluster/`, installs Dayfly there and runs the operator as a process with the
account and rights of its manifest. On a real kubelet, `steps` compares one and two chained steps with bare pods, and
`writes` counts the stored writes of a step. On nodes simulated by KWOK, `bulk` compares a thousand sandboxes with a
bare loop (`floor`), and `idle` measures ten thousand idle ones. `audit` and `timeline` read the API server's audit log,
`watches` observes objects like any client, `manifests` contains the applied objects. The benchmarks use only the
operator's process, port and output, never its internals. `make bench-cluster` runs them through `bench.report`.
"""
