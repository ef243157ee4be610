"""Our end of the link to a control plane: it is dialled from here, and nothing dials in.

`dial` holds the conversation (sessions, numbers, digests, patience) and `way` the connection. What comes is for
`execute.host_end`, as on every host, over `served`: an offer becomes a Sandbox object with its documents and its Run,
an order a change of these, and the same turns carry them out as all others. Nothing is compiled here: what is offered
is sealed. `settled` tells what of that was done before, and `births` asks whether what is offered is still to live.
`answers` reads what the control plane may ask for. `cursor` remembers what was seen last, in a Secret.
"""
