"""Routes with the Gateway API: one route of ours next to each route that leads to a baseline.

`rules` turns a route's rules and the signs of some keys into the rules of ours, `render` makes the objects of them;
both are pure. `read` says of what is there whether Gateways have taken it (pure), and `run` writes, always by UID.

Nobody else's route is changed, and nothing of ours says more than the route that it stands beside: the same Gateways,
hosts, paths and filters, for requests that carry a key. It knows nothing of sandboxes; called by the operator.
"""
