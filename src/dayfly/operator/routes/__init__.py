"""Routes by routing key: HTTPRoutes, GRPCRoutes and VirtualServices for the forks of a sandbox."""
