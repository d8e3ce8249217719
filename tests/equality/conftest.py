"""The demo model, loaded once for all tests of equality in one precision."""

import pytest

from anaphora.errors import ModelError
from tests.equality.support import Bench


@pytest.fixture(scope="session", params=["bfloat16", "float32"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """The demo model, in each precision that this CPU has."""
    try:
        return Bench(request.param)
    except ModelError as error:
        pytest.skip(str(error))
