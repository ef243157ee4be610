"""Routes: requests that carry a routing key lead to a fork, and all others to its baseline.

What a key is, and where a request carries one, says `spec.routing`; here it becomes what a data plane is configured
with. `envoy` renders (pure) what the embedded host's Envoy reads: a listener for each way in, the clusters that its
routes lead to. What a request has to do with a fork is decided by an order of routes, so nothing here is remembered.

It knows neither sandboxes nor who hands out keys. Called by the hosts.
"""
