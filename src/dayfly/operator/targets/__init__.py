"""The target objects of runs: one adapter for each kind, which starts and ends its runs."""
