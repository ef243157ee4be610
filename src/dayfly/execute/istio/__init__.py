"""Routes with Istio: Dayfly's rules in the VirtualServices that route to a baseline.

Istio does not merge two VirtualServices for one host: in the mesh it uses the older one, and at a gateway the order of
their rules is undefined. So Dayfly inserts rules into the existing VirtualService. Each one is a copy of an existing
rule, directly before it, with the match of a routing key. The first matching rule applies, so the copy receives exactly
the requests of its rule that carry a key. If there is no VirtualService, Dayfly creates one that all forks of the
Service share.

- `rules`: inserts and removes rules (pure)
- `read`: finds the VirtualServices of a Service (pure)
- `run`: writes VirtualServices. In those of other owners it changes only Dayfly's rules

This package does not know sandboxes.
"""
