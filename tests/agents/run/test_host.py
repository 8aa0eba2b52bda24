"""A policy that takes observations from the host: what arrives, and how often something is copied."""

import pytest
import torch

from lockstep.agents.run.host import OnHost
from tests.agents.test_discrete import Counted


def doubled(obs: torch.Tensor) -> torch.Tensor:
    return 2 * obs.sum(dim=1)


def copying(act=doubled, **options) -> OnHost:
    """One that copies as to a device, though that is the CPU."""
    hosted = OnHost(act, "cpu", **options)
    hosted.copies = True
    return hosted


def test_on_the_cpu_nothing_is_copied():
    obs = torch.ones(3, 2)
    hosted = OnHost(lambda given: given, "cpu")
    assert hosted(obs) is obs


def test_what_arrives_is_of_the_present_rows_however_many():
    """Episodes end, so that rows become fewer; the next ones have as many again."""
    hosted = copying(pinned=False)
    for rows in (4, 2, 4, 6):
        obs = torch.arange(2.0 * rows).view(rows, 2) + rows
        assert torch.equal(hosted(obs), doubled(obs))


def test_buffers_are_made_once_and_a_step_is_one_copy_up_and_one_down():
    hosted = copying(lambda obs: obs, pinned=False)
    first = hosted(torch.zeros(64, 4))
    with Counted() as counted:
        second = hosted(torch.ones(64, 4))
    assert first.data_ptr() == second.data_ptr() and second.sum() == 256
    assert counted.found["copy_"] == 2
    assert not {"empty", "empty_like", "_to_copy", "clone"} & set(counted.found)


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_on_a_gpu_the_policy_sees_what_the_host_sent(pinned):
    hosted = OnHost(doubled, "cuda", pinned)
    for rows in (4, 2, 6):
        obs = torch.arange(2.0 * rows).view(rows, 2)
        found = hosted(obs)
        assert found.device.type == "cpu" and found.is_pinned() == pinned
        assert torch.equal(found, doubled(obs))


@pytest.mark.gpu
def test_on_a_gpu_the_profiler_sees_one_copy_up_and_one_down():
    from lockstep.experiments.transfer import copies_in

    hosted, obs = OnHost(doubled, "cuda"), torch.ones(64, 4)
    assert copies_in(lambda: hosted(obs)) == 2
