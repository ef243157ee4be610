"""Fixtures for both hosts."""

from tests.embedded.conftest import machine, runner  # noqa: F401 - fixtures
