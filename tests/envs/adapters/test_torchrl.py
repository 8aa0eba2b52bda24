"""Ports under TorchRL itself: its checker, its rollouts, its transforms, its collector."""

import pytest
import torch

from lockstep import envs

pytest.importorskip("torchrl", reason="needs TorchRL: pip install torchrl")

from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.envs import RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

from lockstep.envs.adapters import torchrl
from tests.envs.batches import EACH_KIND


@pytest.mark.parametrize("name", EACH_KIND)
@pytest.mark.parametrize("num_envs", [1, 7])
def test_torchrls_own_checker_accepts_it(name, num_envs):
    env = torchrl.make(name, num_envs, max_episode_steps=2)  # the checker takes three steps: one reset among them
    check_env_specs(env, break_when_any_done="both", seed=0)


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_rollout_is_the_bare_batch_in_same_step_mode(name):
    """TorchRL resets by a mask between two steps, the batch in the step itself: the same episodes, by the same seed."""
    env = torchrl.make(name, 16, max_episode_steps=20)
    env.set_seed(5)
    rows = env.rollout(60, break_when_any_done=False)
    batch = envs.make(name, 16, max_episode_steps=20)
    obs, _ = batch.reset(seed=5)
    ends = 0
    for t in range(60):
        now = rows[:, t]
        assert torch.equal(now["observation"], obs)
        obs, reward, terminated, truncated, info = batch.step(now["action"])
        ended = terminated | truncated
        last = torch.where(ended[:, None], info["final_obs"], obs)
        assert torch.equal(now["next", "observation"], last)
        for key, flag in (("terminated", terminated), ("truncated", truncated), ("done", ended)):
            assert torch.equal(now["next", key], flag[:, None])
            assert not now[key].any()  # an episode begins afresh
        assert torch.equal(now["next", "reward"], reward[:, None])
        ends += int(ended.sum())
    assert ends >= 48


def test_a_mask_restarts_its_environments_and_no_others():
    env, batch = torchrl.make("cartpole", 6, seed=2), envs.make("cartpole", 6, seed=2)
    before = env.reset()
    mask = torch.tensor([True, False, False, True, False, True])
    after = env.reset(before.clone().set("_reset", mask[:, None]))
    assert torch.equal(after["observation"][~mask], before["observation"][~mask])
    batch.reset()
    second, _ = batch.reset()  # the second episode of every environment
    assert torch.equal(after["observation"][mask], second[mask])
    assert "_reset" not in after
    nobody = torch.zeros(6, 1, dtype=torch.bool)
    assert (env.reset(after.clone().set("_reset", nobody)) == after).all()


def test_flags_of_environments_outside_a_mask_stay():
    env = torchrl.make("cartpole", 4, max_episode_steps=1)
    env.step(env.rand_action(env.reset()))
    mask = torch.tensor([[True], [False], [True], [False]])
    rows = env._reset(TensorDict({"_reset": mask}, [4]))
    assert torch.equal(rows["truncated"], ~mask)
    assert not rows["terminated"].any()


def test_ended_environments_wait_until_the_last_has_ended():
    env = torchrl.make("cartpole", 16, seed=0)
    torch.manual_seed(0)
    rows = env.rollout(500, break_when_any_done=False, break_when_all_done=True)
    done = rows["next", "done"].squeeze(-1)
    assert done[:, -1].all()
    assert not done[:, -2].all()
    assert (done.cummax(dim=1).values == done).all()  # once ended, ended
    first = done.int().argmax(dim=1)
    for i in range(16):
        last = rows[i]["next", "observation"][first[i] :]
        assert torch.equal(last, last[:1].expand_as(last))


def test_what_comes_out_outlives_the_next_step():
    env = torchrl.make("cartpole", 4, max_episode_steps=3)
    first = env.reset()
    kept = env.step(env.rand_action(first))
    copy = kept.clone()
    env.rollout(10, break_when_any_done=False)
    assert (kept == copy).all()


def test_a_seed_starts_the_noise_anew_at_the_next_reset():
    env, batch = torchrl.make("cartpole", 4, seed=9), envs.make("cartpole", 4, seed=9)
    assert torch.equal(env.reset()["observation"], batch.reset()[0])
    env.set_seed(3)
    first = env.reset()["observation"]
    assert torch.equal(first, batch.reset(seed=3)[0])
    assert torch.equal(env.reset()["observation"], batch.reset()[0])
    env.set_seed(3)
    assert torch.equal(env.reset()["observation"], first)


def test_transforms_count_and_sum_across_resets():
    env = TransformedEnv(torchrl.make("cartpole", 16, seed=1), RewardSum())
    env.append_transform(StepCounter())
    check_env_specs(env)
    rows = env.rollout(200, break_when_any_done=False)["next"]
    ended = rows["done"]
    assert ended.sum() > 50
    assert torch.equal(rows["episode_reward"][ended].long(), rows["step_count"][ended])  # reward 1 in every step
    assert rows["step_count"][ended].min() >= 8  # no episode of CartPole is shorter


def test_a_box_policy_is_kept_in_its_bounds():
    env = torchrl.make("pendulum", 32)
    action = env.rollout(20)["action"]
    assert (action.shape, action.dtype) == ((32, 20, 1), torch.float32)
    assert action.abs().max() <= 2
    assert env.action_spec.space.low.eq(-2).all()


def test_a_collector_gathers_from_it():
    env = TransformedEnv(torchrl.make("cartpole", 8, seed=1), StepCounter())
    collector = Collector(env, frames_per_batch=8 * 50, total_frames=3 * 8 * 50)
    batches = list(collector)
    collector.shutdown()
    assert [batch.shape for batch in batches] == [(8, 50)] * 3
    rows = torch.cat(batches, dim=1)
    going = ~rows["next", "done"][:, :-1, 0]
    assert torch.equal(rows["next", "observation"][:, :-1][going], rows["observation"][:, 1:][going])
    assert (~going).sum() > 30
    assert rows["observation"][:, 1:][~going].abs().max() <= 0.05  # first observations


def test_specs_are_those_of_the_port():
    env = torchrl.make("cartpole", 5)
    space = envs.make("cartpole", 1).single_observation_space
    box = env.observation_spec["observation"]
    assert (env.batch_size, env.device.type) == ((5,), "cpu")
    assert (box.shape, box.dtype) == ((5, 4), torch.float32)
    assert torch.equal(box.space.low, torch.tensor(space.low).expand(5, 4))
    assert torch.equal(box.space.high, torch.tensor(space.high).expand(5, 4))
    assert (env.action_spec.n, env.action_spec.shape, env.action_spec.dtype) == (2, (5,), torch.int64)
    assert env.reward_spec.shape == (5, 1)
    assert all(env.full_done_spec[key].shape == (5, 1) for key in ("done", "terminated", "truncated"))


@pytest.mark.gpu
def test_step_and_reset_never_wait_for_the_device():
    env = torchrl.make("cartpole", 1024, device="cuda")
    rows = env.rand_action(env.reset())
    mask = TensorDict({"_reset": torch.ones(1024, 1, dtype=torch.bool, device="cuda")}, [1024], device="cuda")
    env._step(rows), env._reset(mask)  # compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        env._step(rows)
        env._reset(mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_gpu_and_cpu_give_the_same_rollout():
    actions = torch.randint(2, (50, 64))
    rollouts = []
    for device in ("cpu", "cuda"):
        env = torchrl.make("cartpole", 64, device=device, seed=3)
        row, rows = env.reset(), []
        for action in actions:
            now, row = env.step_and_maybe_reset(row.set("action", action.to(device)))
            rows.append(now.cpu())
        rollouts.append(torch.stack(rows))
    assert (rollouts[0] == rollouts[1]).all()


def test_what_it_cannot_wrap_is_refused_and_a_batch_stays_on_its_device():
    env = torchrl.make("cartpole", 2)
    assert env.to("cpu") is env
    table = [
        (lambda: env.to("cuda:1"), "made on cpu, asked for cuda:1"),
        (lambda: torchrl.TorchRLEnv(envs.make("cartpole", 2)), "autoreset_mode='SameStep' must be 'Disabled'"),
        (
            lambda: torchrl.TorchRLEnv(envs.make("cartpole", 2, autoreset_mode="NextStep")),
            "autoreset_mode='NextStep' must be 'Disabled'",
        ),
    ]
    for call, message in table:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("action", [2**32, 2**32 + 3, -(2**32), 2**63 - 1, -(2**63)])
def test_an_action_beyond_int32_is_not_taken_for_another(action):
    env = torchrl.make("vehicle_routing", 2, check_actions=True)
    first = env.reset()
    with pytest.raises(ValueError, match=r"action\[1\]=-?2147483\d+ of environment 1 is not in 0 .. 15"):
        env.step(first.set("action", torch.tensor([0, action])))
