"""Terraform states, kept from the create steps of a resource to its delete steps.

The protocol is that of Terraform's and OpenTofu's own backend `http`. `head` says, of the one small document in which
lock and versions stand, what may become of it: a pure function of that document and of the ledger. `seal` turns bytes
into chunks that nobody reads without the key, and back. `access` is how an attempt proves who it is. `service` is one
request from its head to its answer, over a `Store` of which each host has its own.

A lock belongs to an attempt of a unit of a run. It is broken when the ledger proves that this attempt has ended, and by
nothing else; what an ended attempt still asks for is refused. Whoever writes has read the head before the ledger, and
writes only over that head: so a write that comes late meets a head that the next holder of the lock has changed.
"""
