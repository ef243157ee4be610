"""How fast, and how much, in a cluster? As the benches beside this folder: each promise beside a yardstick, in one run.

`place` starts a cluster of its own with `testcluster/`, installs Dayfly there and runs the operator as a process under
the account that its manifest grants. `steps` is one and two chained steps against bare pods, `writes` the stored
writes of a step, both on a real kubelet; `bulk` is a thousand sandboxes against a bare loop (`floor`), `idle` ten
thousand that need nothing, both on nodes played by KWOK. `audit` and `timeline` read the API server's audit log, `seen`
watches as any client may, `wishes` has what is applied. The benches never look into the operator: they see its
process, its port and what it writes. Called by `make bench-cluster` through `bench.report`.
"""
