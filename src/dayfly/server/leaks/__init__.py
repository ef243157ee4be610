"""Leak checks: endpoints that pass them to their hosts, and the reports of the hosts."""
