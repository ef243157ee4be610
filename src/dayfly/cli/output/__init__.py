"""Output for users: tables, the progress of a run, plans as text."""
