"""How is it done and seen? One turn (observe, decide, commit, perform), and one folder for each way to run a unit.

Each folder has three parts: `render` (pure: what to start), `read` (pure: what came back, as a fact of `plan.world`)
and `run` (the only place with side effects). This room understands sealed documents and nothing else; it never imports
the compiler, so a new feature of plugins needs a new control plane, never a new host. Called by the hosts, `embedded`
and `operator`, which own the ledger and hand in what touches the outside as ports. `host_end` is their end of the link
to a control plane.
"""
