"""What a person sees: tables, data, the progress of a run, a plan in words. Everything here is given its data."""
