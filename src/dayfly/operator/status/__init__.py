"""What the operator reports to users: statuses, conditions, Events and logs of steps; it is never read back."""
