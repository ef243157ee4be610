import pytest
from tests.model.engine import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The search, built once."""
    return Engine(tmp_path_factory.mktemp("model"))
