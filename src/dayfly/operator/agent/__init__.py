"""This cluster as a host of a control plane, which it dials over `link`; nothing dials in.

`cluster_host` is the host: an offer becomes a Sandbox object with its documents and its Run, an order changes these,
and the usual turns carry them out. Nothing is compiled here: what is offered is sealed. `offer_dedup` finds offers that
are already carried out, `run_reads` answers questions about runs, and `cursor` is kept in a Secret.
"""
