"""How fast, and how much? Each file measures one promise beside a yardstick, in the same run and taking turns with it.

What is compared is a ratio or a difference of medians, never seconds of one machine against those of another. `step`
is one step against a bare process, `bulk` a thousand sandboxes against a plain pool, `start` the command line against
the bare interpreter, `deciding` one turn's thinking, `memory` a server full of idle sandboxes. Each has
`measure(...) -> list[Row]` and can be run alone (`python -m bench.step`); `report` runs all of them, in a `/tmp` of
their own (`quiet`), and writes the table in docs/performance.md. Benches use what everybody may use: the host's class,
the server, the command line. They promise nothing about correctness; the tests do. Called by `make bench`. Those that
need a Kubernetes are in `bench.cluster`, and `report` writes their part of the page for `make bench-cluster`.
"""
