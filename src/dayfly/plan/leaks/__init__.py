"""Leak checks: the output of inventory scripts, and the verdict about each listed item. Pure: times are arguments."""
