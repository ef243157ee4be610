"""How does a person ask? The command line: one file for each verb, and what several verbs share.

A verb reads wishes from files, asks the server of its home (`target_server`), watches a run (`watch`, `progress`) and
shows what came back (`show`). Results go to stdout, the talk to stderr; every failure is a `DayflyError` with an exit
code and ends up as one line. Verbs that only look, and `abandon`, ask a `port.Host`: the server
of the home or, with `--context`, a cluster (`cluster`, with `from_status` and `cluster_logs`). `up`
assembles a server out of `control` and `embedded`; no other file here knows either of them. The start of a command is
measured, so everything is imported where it is used: a verb's file when the verb is called, and within it what only
some of its ways need. Nobody imports this room.
"""
