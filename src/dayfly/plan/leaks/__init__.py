"""Leak checks: the output of inventory scripts, and the verdict about each listed thing. Pure: times are arguments."""
