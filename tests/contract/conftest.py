"""Every environment, for tests that ask for `name`."""

import pytest

from tests.contract.batches import NAMES


@pytest.fixture(params=NAMES)
def name(request):
    return request.param
