"""One meaning on both hosts: each story is told by the embedded host and by the operator, in the same words.

What is asked for and how the scripts behave is written once (`story_documents`); `machine` and `cluster` bring it about, one with
processes, the other over the fake API server in virtual time; both tell what was written to the ledger and what is said
(`story_log`), and that is held to one golden text.
"""
