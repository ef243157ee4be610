"""Routes of the embedded host: requests with a routing key reach a fork, others the baseline.

`spec.routing.routing_keys` defines a routing key and which part of a request carries it. `envoy` renders (pure) the
configuration of the embedded host's Envoy: a listener for each baseline and the clusters that its routes lead to. The
order of the routes decides which fork a request reaches, so the proxy keeps no state.

It knows neither sandboxes nor who hands out keys. Called by the hosts.
"""
