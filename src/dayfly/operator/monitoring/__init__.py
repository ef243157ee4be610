"""Logs, metrics, traces and health checks for administrators."""
