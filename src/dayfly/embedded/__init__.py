"""The host on one machine: its SQLite ledger, processes, forks, routes, and alarms for leases and times to live.

It takes the same turns as the operator. Everything that must survive `kill -9` is in the ledger or in the folder of an
attempt. A kernel lock admits one server for each home. The package executes sealed documents and never compiles them.
`cli` runs it in one process with `server`.
"""
