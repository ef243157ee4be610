"""Routes by key in a cluster: what stands beside the baselines' own HTTPRoutes and GRPCRoutes for each sandbox."""
