"""Webhooks: one request to a server, sent by a program of ours that runs like a step.

`render` makes of the unit an exec unit that runs the sender, `read` understands how the sender ended. The rest is the
sender itself, which runs in a process of its own and imports nothing of Dayfly but what lies here: `request` says what
is sent, `guard` which addresses may be connected to, `exchange` sends and reads an answer, `sender` decides what
follows. `ends` is what both sides know: how it ends.
"""
