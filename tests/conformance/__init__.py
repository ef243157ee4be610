"""Conformance of both hosts: the embedded host and the operator report each story in the same words.

A story and the behaviour of its scripts are defined once (`story_documents`). `machine` plays it with processes, and
`cluster` over the fake API server in virtual time. `story_log` writes the moves of the ledger and the reports of each
as text, and both texts must equal one golden file.
"""
