"""Routes of the embedded host: requests with a routing key reach a fork, others the baseline.

`spec.routing.routing_keys` defines a routing key and the parts of a request that can carry it. `envoy` renders the
configuration of the embedded host's Envoy (pure). It has a listener for each baseline and preview, and a cluster for
each port. The order of the routes decides which fork receives a request, so the proxy is stateless.

This package does not know sandboxes.
"""
