"""Rules for all tests: no GPU, no GPU tests; and hypothesis draws the same examples in each run."""

import hypothesis
import pytest

# A first example may compile a kernel, so none has a deadline; no database, so nothing is left in the tree.
hypothesis.settings.register_profile("lockstep", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lockstep")


@pytest.fixture
def one_thread():
    """One thread for torch: networks as small as the tests' are slower on more, above all beside other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from lockstep import envs

    if not envs.cuda_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none here"))
