"""Wishes applied with kubectl: Sandboxes are compiled and sealed, plugins judged as they are published."""
