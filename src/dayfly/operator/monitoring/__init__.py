"""Logs, metrics, traces and health of the operator, for administrators."""
