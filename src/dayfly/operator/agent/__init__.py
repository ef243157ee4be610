"""This cluster as a host of a control plane, which it dials over `link`; nothing dials in.

`served` is the host: an offer becomes a Sandbox object with its documents and its Run, an order a change of these, and
the same turns carry them out as all others. Nothing is compiled here: what is offered is sealed. `settled` tells what
of that was done before. `answers` reads what the control plane may ask for. `cursor` is kept in a Secret.
"""
