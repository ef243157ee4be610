"""Published plugins and declared baselines, and how they become the documents of a run."""
