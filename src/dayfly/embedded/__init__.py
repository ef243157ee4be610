"""Who makes one machine a host: the SQLite ledger, launched processes, kept workloads, times to live and leases.

It runs the same turns as the operator in a cluster. Everything that must survive `kill -9` is in the ledger or in an
attempt's own folder (work order, start marker, receipt, log), which the launched runner owns. One server per home, by
kernel lock. It may not know wishes (plugins, sandboxes): those become documents in `compile`, before they come here.
Called by `cli`, which puts it beside `control` in one process.
"""
