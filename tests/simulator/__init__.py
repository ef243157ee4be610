"""A world in which everything goes wrong: the real turn, the real decisions, the real ledger; simulated processes.

`scenario` draws small plans, `oracle` holds the truth (an append-only log of what really started and ended) and the
invariants, `server` is one process that takes turns, `world` schedules and breaks things, `machine` models the embedded host and `cluster` a host with gated pods
and two servers active at once. Everything is drawn from one seed, so a schedule replays bit for bit:

    python -m tests.simulator --seed 7

The simulation knows the product only through `turn`, `Ledger` and the words of `plan.world` and `plan.actions`. It may
not reuse the product's own judgement: the oracle has rules of its own.
"""
