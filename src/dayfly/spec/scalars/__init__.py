"""Single values that people write: names, versions, durations, label selectors, JSONPath."""
