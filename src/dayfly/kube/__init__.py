"""How Kubernetes speaks: client, watch cache, Lease, Events, strategic merge.

It knows no sandbox, no unit, nothing of ours, and imports nothing of `dayfly` but `work`; whoever calls it brings the
kinds (`objects.Resource`) and the meaning. `transport` is the outer wall: aiohttp in a cluster, a fake API server in
tests. `auth` alone imports `kubernetes`, for credentials. All waiting is on the event loop's own clock, so a loop with
virtual time tests days in milliseconds.

Two rules shape it. A lost answer to a change is `errors.OutcomeUnknown`, never a failure, and nothing here sends a
change twice. A cache only suggests: whoever decides guards the write by UID and resource version.

Called by `execute` (each kind's `run`) and `operator`. Needs the extra `operator`; the command line does without.
"""
