"""What next, and why? The heart: a total function from sealed documents, a ledger and observed facts to actions.

`decide(plan, world, now)` answers for every world; nothing in this room raises because of what it is told, waits, reads
a clock, or holds a handle. Time, facts and the ledger come in as values; actions with their reasons go out as values.
`sealed.Plan` is the index over a run's documents, `world` is what may be known, `actions` what may be asked, `table`
which ledger moves exist, `retry` what follows a failure, `words` every reason and sentence, `status` and `why` what
people read. Called by the hosts' turns, and by `control` and `cli` for what people read. It knows no host: a pod and
a process are the same few facts here.
"""
