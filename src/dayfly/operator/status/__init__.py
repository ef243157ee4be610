"""What the operator says to people: statuses, conditions, Events, logs of steps. Nothing reads any of it back."""
