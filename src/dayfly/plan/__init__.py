"""What next, and why? The heart: a total function from sealed documents, a ledger and observed facts to actions.

How to think in this room
-------------------------

Two things must never happen: that a create step runs twice, and that something it made is left behind. What makes this
hard is that we never see a step run. We see a pod, a process, a log, a receipt, each of them late, some of them lost,
and others decide at the same time from what they see. So this room does not ask what is happening. It asks three
questions that have answers.

*What was permitted?* Nothing starts unless the ledger says so first. The ledger is changed only by compare-and-swap, so
of two deciders one is refused and decides again. What it does not permit cannot have happened; what it permits may have
happened. For each attempt it knows five states, which only ever rise:

    none < claimed < unknown < { done, void }

`claimed` permits one attempt. `done` holds how that attempt ended. `void` is the proof that it never began, which makes
it no attempt at all. `unknown` is the honest one: it may have run, and nobody can tell. Unknown is not failed. A unit
that failed may be cleaned up now; one that is unknown may still be writing. All moves are in `table`, and nothing
else changes a ledger.

*What is known?* A world (`world.World`) is everything seen in one turn, as values: one fact for each attempt of which
there is any news. The kinds of facts differ in what they prove, not in what they look like. `Sealed` says what a step
has told and not that it is gone, so what reads its outputs may start, and its cleanup may not. `Ended` says that
every process of it is gone. `NeverRan` proves that it cannot start any more. The absence of a fact proves nothing. A
pod and a process are the same few facts here, and so is every host that is yet to come.

*What follows?* Moves, effects and waits. Moves are written to the ledger, all in one write. Only when they are written
are the effects carried out, and an effect may be repeated or lost at any time: the next turn sees what became of it and
asks for it again. That is why results are recorded before the evidence may go, why a turn that is cut off anywhere does
no harm, and why nothing here remembers the turn before. Whatever is not done is waited for, and each wait has its
reason: what people read is made of the same decision that the host acts on, not of a second opinion about it.

The house rules of this room:

- Total. There is an answer for every world, also for those that cannot be. Nothing raises because of what it is told.
- Pure. No clock, no file, no chance, no waiting: `now` is an argument. So every schedule can be played again by its
  seed, and a model can try all of them.
- In doubt, the side on which nothing is lost: do not start, do clean up, say that it is not known.
- Every guard is held by a seeded bug in `tests/simulator/bugs.py`: the guard taken out, which the simulator must find.
  A guard whose loss nobody notices is not one.
- Of hosts this room knows what `world` says and no more: how many places there are, which kinds stand behind a gate.

Where things are: `decide` gives the order (what has ended is recorded first; then an open run starts what is ready, in
`opening`, and a closed one stops and cleans, in `closing`). `draft` is where one decision is written, on a ledger that
already has this turn's moves, so that a result and the claims that follow from it go into one write. `retry` says what
follows a failure. `sealed` is the index over a run's documents, `actions` what may be asked of a host. `reasons` and
`words` are all that is said; `status`, `why` and `phases` what people read. Called by the hosts' turns, and by
`control` and `cli` for what people read.
"""
