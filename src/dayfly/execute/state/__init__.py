"""Terraform states, kept from the create steps of a resource to its delete steps.

The protocol is the one of the `http` backend in Terraform and OpenTofu. A state has one small document, its head, with
the lock and the versions.

- `head`: the changes of a head, as pure functions of the head and the ledger
- `seal`: encrypts a state into chunks, and decrypts them
- `access`: the environment variables and the password of an attempt
- `service`: handles one request, over the `StateStore` of a host
- `handler`: the service as an ASGI application
- `outcome`: whether an attempt with a state has succeeded

A lock belongs to an attempt of a unit. It is broken only when the ledger proves that this attempt has ended. Requests
of ended attempts are refused. A writer reads the head before the ledger and then replaces exactly that head by
compare-and-swap. So a late write of an ended attempt fails: the next holder of the lock has changed the head.
"""
