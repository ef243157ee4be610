"""Output for users: statuses, conditions, Events, CloudEvents and logs of steps. The operator never reads it back."""
