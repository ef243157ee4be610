"""Pools and shared parents of the embedded host: their holders, and the loop that creates and replaces members.

A member is a run in the ledger like any other. Whatever changes several runs, such as a hold, is one transaction.
"""
