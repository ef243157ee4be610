"""Benchmarks: each file measures one promise and a yardstick in turns, in the same run.

The results are ratios or differences of medians, and never compare seconds of different machines. `step` compares one
step with a bare process, `bulk` a thousand sandboxes with a plain pool, `start` the command line with the bare
interpreter. `deciding` measures one decision, `memory` a server with many idle sandboxes. Each has
`measure(...) -> list[Row]` and can run separately (`python -m bench.step`). `report` runs a group in a separate `/tmp`
(`quiet`), and writes its page in `bench/results/`. Benchmarks use only public interfaces: the class of the embedded
host, the server, the command line. They do not check correctness; the tests do. README.md describes each measurement.
"""
