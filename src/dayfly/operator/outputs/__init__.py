"""What steps hand over: a Secret for each attempt, and how outputs too large for a pod's status are had."""
