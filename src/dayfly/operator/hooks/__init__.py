"""The controllers for LifecycleHooks: a run for each object that a hook selects."""
