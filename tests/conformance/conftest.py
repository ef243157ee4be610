"""What both hosts' rigs need."""

from tests.embedded.conftest import machine, runner  # noqa: F401 - fixtures
