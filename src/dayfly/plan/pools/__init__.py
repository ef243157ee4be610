"""The refill of resource pools: demand, wanted size, and the members that are created, closed and kept. Pure."""
