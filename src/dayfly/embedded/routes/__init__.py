"""Routes and previews of the embedded host: the local Envoy and its route table."""
