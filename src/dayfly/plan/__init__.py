"""The decision core: from sealed documents, a ledger and observed facts to the next actions and the end of a run.

`decide` is total and pure: it uses no clock, file or client, and the same input gives the same answer. `transitions`
has every legal change of the ledger, `open_run` and `closed_run` the two halves of a run, `retry` what follows a
failed attempt. `reasons`, `messages`, `status` and `why` are what people read of a decision. CONTRIBUTING.md explains
how to think in this package; hosts call it, and `server` and `cli` call its reports.
"""
