"""The controllers for Sandboxes and ResourcePlugins that are applied with kubectl."""
