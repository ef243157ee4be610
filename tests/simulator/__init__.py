"""A simulator that injects faults: the real turn, decisions and ledger, with simulated processes.

`scenario` draws small plans. `oracle` contains the invariants and the truth, an append-only log of each real start and
end. `server` is one process that takes turns. `world` chooses the next step and the faults. `machine` models the
embedded host, and `cluster` a host with gated pods and two active servers. All random choices come from one seed, so a
schedule can be repeated exactly:

    python -m tests.simulator --seed 7

`pool_house` and `pool_oracle` do the same for sandboxes that hold members of pools and shared parents. They use the real
engine, pool keeper, executor and ledger of the embedded host, with simulated processes and virtual time:

    python -m tests.simulator --host pools --seed 7

The simulation of one run uses only `turn`, `Ledger`, and the types of `plan.world` and `plan.actions`. The oracle has separate
rules and does not use the product's decisions.
"""
