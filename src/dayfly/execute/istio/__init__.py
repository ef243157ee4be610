"""Routes with Istio: rules of ours in the VirtualServices that lead to a baseline.

Istio knows no "beside": of two VirtualServices for one host it takes the older, and at a gateway their rules stand in
an order that nobody has chosen. So ours are woven into the one that is there, each right before the rule that it is a
copy of: the first rule that fits is taken, so the copy is for just those requests of its rule that carry a key. Where
none is there, we make one that everybody's forks of that Service share.

`rules` weaves (pure), `read` says which VirtualServices concern a Service (pure), `run` writes: of somebody else's
never more than the list of rules, in which all but ours stay as they are. It knows nothing of sandboxes; called by the
operator.
"""
