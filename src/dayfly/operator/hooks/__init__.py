"""LifecycleHooks applied with kubectl: paired with the objects that they select, and a run sealed for each."""
