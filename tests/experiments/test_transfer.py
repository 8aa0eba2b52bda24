import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from gymnasium.spaces import Box

from lockstep import envs
from lockstep.agents.run.host import OnHost
from lockstep.experiments import command, config, shares, transfer
from lockstep.experiments import run as command_line
from lockstep.experiments.bench import timing
from lockstep.experiments.config import Settings
from lockstep.experiments.ledger import results
from lockstep.experiments.transfer import Loop

BLOCKS = 6


@pytest.fixture
def settings():
    return Settings({"seed": 0, "transfer": {"num_envs": [64], "blocks": BLOCKS}})


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(transfer, "MIN_BLOCK_S", 0.002)


def check_rows(rows, group, parts):
    """Six blocks of every part, each with the columns of the CSV."""
    assert [(row["part"], row["block"]) for row in rows if row["block"] == 0] == [(part, 0) for part in parts]
    assert len(rows) == BLOCKS * len(parts)
    for row in rows:
        assert set(row) - {"had"} == set(transfer.COLUMNS)
        assert (row["environment"], row["loop"], row["source"]) == ("cartpole", group.loop, group.source)
        assert row["calls"] > 0
        assert row["wall_s"] > 0


ON_CPU = {
    Loop("note", "gymnasium-vector", "cpu", "none", 64): ["step"],
    Loop("note", "port-cpu", "cpu", "none", 64): ["step"],
    Loop("note", "copy", "cpu", "pageable", 64): ["host-copy"],
    Loop("real", "gymnasium-vector", "cpu", "none", 64): ["loop", "policy", "step"],
    Loop("resident", "port-cpu", "cpu", "none", 64): ["loop", "policy", "step"],
}
ROWS = {
    Loop("rows", "original", "cpu", "none", 4): ["loop", "policy", "step"],
    Loop("real", "original", "cpu", "none", 4): ["loop", "policy", "step"],
}
ON_CUDA = {
    **{Loop("note", "copy", "cuda", memory, 64): ["up", "down"] for memory in ("pageable", "pinned")},
    **{
        Loop("real", source, "cuda", memory, 64): ["loop", "up", "policy", "down", "step"]
        for source in transfer.SOURCES
        for memory in ("pageable", "pinned")
    },
    Loop("resident", "port-cuda-graph", "cuda", "none", 64): ["loop"],
}


def test_without_a_gpu_nothing_is_called_a_transfer(settings):
    assert transfer.groups("cartpole", settings, ["cpu"]) == list(ON_CPU)


def test_with_a_gpu_every_loop_is_also_counted_after_all_are_timed(settings):
    found = transfer.groups("cartpole", settings, ["cpu", "cuda"])
    timed = [group for group in found if not group.counted]
    assert set(timed) == set(ON_CPU) | set(ON_CUDA)
    assert found[len(timed) :] == [replace(group, counted=True) for group in ON_CUDA if group.source != "copy"]
    assert len({group.label for group in found}) == len(found)


def test_an_environment_without_a_vectorised_class_has_the_port_alone(settings, monkeypatch):
    rung = replace(transfer.rungs.RUNGS["gymnasium-vector"], missing=lambda *of: "there is no such class")
    monkeypatch.setitem(transfer.rungs.RUNGS, "gymnasium-vector", rung)
    found = transfer.groups("cartpole", settings, ["cpu"])
    assert {group.source for group in found} == {"port-cpu", "copy"}


@pytest.mark.parametrize("group", ON_CPU, ids=lambda group: group.label)
@pytest.mark.usefixtures("short_blocks")
def test_every_part_on_the_cpu_has_its_rows(settings, group):
    rows = transfer.measure("cartpole", group, settings)
    check_rows(rows, group, ON_CPU[group])
    # [64, 4] float32 are 1024 bytes.
    assert {row["bytes"] for row in rows} == ({1024} if group.source == "copy" else {None})


def test_originals_are_stepped_row_by_row_and_together():
    settings = Settings({"seed": 0, "transfer": {"num_envs": [64], "blocks": BLOCKS, "originals": [4]}})
    assert transfer.groups("cartpole", settings, ["cpu"]) == [*ON_CPU, *ROWS]
    found = transfer.groups("cartpole", settings, ["cuda"])
    memories = [("rows", "pageable"), ("real", "pageable"), ("real", "pinned")]
    assert [(group.loop, group.memory) for group in found if group.source == "original"] == memories


@pytest.mark.parametrize("group", ROWS, ids=lambda group: group.label)
@pytest.mark.usefixtures("short_blocks")
def test_originals_have_their_rows(settings, group):
    check_rows(transfer.measure("cartpole", group, settings), group, ROWS[group])


@pytest.mark.parametrize(("environment", "steps"), [("cartpole", 60), ("marine_navigation", 3)])
def test_row_by_row_the_same_originals_are_stepped_as_together(environment, steps, monkeypatch):
    """Each has a scenario of its own, where there are scenarios; in 60 steps all poles have fallen."""
    one_memory, sources = transfer.one_memory, []
    monkeypatch.setattr(
        transfer, "one_memory", lambda source, choose: sources.append(source) or one_memory(source, choose)
    )
    given = Settings({"seed": 3, "transfer": {"num_envs": [64], "blocks": BLOCKS}})
    rows, together = (Loop(kind, "original", "cpu", "none", 3) for kind in ("rows", "real"))
    with transfer.loop(environment, rows, given) as apart, transfer.loop(environment, together, given) as whole:
        *each, batch = sources
        assert len(each) == 3 and not torch.equal(batch.observation[0], batch.observation[1])
        for _ in range(steps):
            found = torch.cat([source.observation for source in each])
            torch.testing.assert_close(found, batch.observation, rtol=1e-4, atol=1e-4)  # products of other sizes
            apart.run()
            whole.run()


def test_row_by_row_the_policy_is_asked_for_one_agent_at_a_time(monkeypatch):
    policy, asked = transfer.policy, []

    def noted(*given):
        choose = policy(*given)
        return lambda observation: asked.append(tuple(observation.shape)) or choose(observation)

    monkeypatch.setattr(transfer, "policy", noted)
    given = Settings({"seed": 3, "transfer": {"num_envs": [64], "blocks": BLOCKS}})
    with transfer.loop("marine_navigation", Loop("rows", "original", "cpu", "none", 2), given) as rows:
        rows.run()
    env = envs.make("marine_navigation", 1)
    assert env.num_agents > 1 and asked == [(1, *env.single_observation_space.shape)] * (2 * env.num_agents)


@pytest.mark.parametrize("environment", ["cartpole", "marine_navigation"])
def test_the_first_of_two_originals_sees_what_it_sees_alone(environment):
    opened, choose = transfer.OPENED["original"], transfer.policy(environment, "cpu", 0)
    with opened(environment, 2, 3) as both, opened(environment, 1, 3) as alone:
        first = alone.observation.clone()
        for _ in range(3):
            both.step(choose(both.observation))
            alone.step(choose(alone.observation))
        torch.testing.assert_close(alone.observation[0], both.observation[0], rtol=0, atol=1e-4)
        assert not torch.equal(alone.observation, first) and not torch.equal(both.observation[0], both.observation[1])


@pytest.mark.gpu
@pytest.mark.parametrize("group", ON_CUDA, ids=lambda group: group.label)
@pytest.mark.usefixtures("short_blocks")
def test_every_part_on_the_gpu_has_its_rows(settings, group):
    rows = transfer.measure("cartpole", group, settings)
    check_rows(rows, group, ON_CUDA[group])
    # The note sent observations both ways, [64, 4] float32; a real loop sends 64 actions back, int64.
    bytes_down = 1024 if group.loop == "note" else 512
    moved = {row["part"]: row["bytes"] for row in rows if row["part"] in ("up", "down")}
    assert moved == ({} if group.loop == "resident" else {"up": 1024, "down": bytes_down})


@pytest.mark.gpu
@pytest.mark.parametrize("group", [group for group in ON_CUDA if group.source != "copy"], ids=lambda group: group.label)
def test_a_real_loop_copies_twice_a_step_and_a_resident_one_never(settings, group):
    (row,) = transfer.measure("cartpole", replace(group, counted=True), settings)
    assert row["copies"] == (0 if group.loop == "resident" else 2 * row["calls"])


@pytest.mark.gpu
@pytest.mark.parametrize("memory", ["pageable", "pinned"])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_what_arrives_is_what_was_sent(memory, order):
    """Each round the policy sees the present observation, in whatever order its numbers lie, and acts on it."""
    batch = torch.arange(12.0).reshape(3, 4)
    source = sent(batch if order == "rows" else batch.T.contiguous().T)
    group = Loop("real", "port-cpu", "cuda", memory, 3)
    found = transfer.two_memories(source, lambda observation: observation.sum(dim=1).long(), group)
    for run in (found.run, found.parts, found.run):
        run()
    # Rows 0..3, 4..7, 8..11, and one more in every number of the next round.
    assert [action.tolist() for action in source.taken] == [[6, 22, 38], [10, 26, 42], [14, 30, 46]]


def sent(observation):
    """A source that notes the actions it takes; each of its steps adds one to its observation."""

    def step(action):
        source.taken.append(action.clone())
        source.observation = source.observation + 1

    source = transfer.Source(observation, step, [], threads=1)
    source.taken = []
    return source


def test_on_the_cpu_the_step_takes_what_the_policy_chose_from_the_last_observation():
    source = sent(torch.arange(12.0).reshape(3, 4))
    found = transfer.one_memory(source, lambda observation: observation.sum(dim=1).long())
    found.run()
    assert set(found.parts()) == {"policy", "step"}
    assert [action.tolist() for action in source.taken] == [[6, 22, 38], [10, 26, 42]]


@pytest.fixture
def clock(monkeypatch):
    """A clock in seconds that stands still but for what moves it; events of the device read the same one."""
    clock = SimpleNamespace(now=0.0)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            self.at = clock.now

        def elapsed_time(self, later):
            return 1e3 * (later.at - self.at)

    monkeypatch.setattr(transfer.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    return clock


def copying(choose, device: str, pinned: bool) -> OnHost:
    """One that copies as to another device, though it is the CPU's memory."""
    hosted = OnHost(choose, device, pinned)
    hosted.copies = True
    return hosted


def test_parts_of_a_real_loop_are_what_the_clocks_say(clock, monkeypatch):
    """30 s up, 40 s of policy, 10 s down, 20 s of step: one whole of 100 s."""
    monkeypatch.setattr(transfer, "OnHost", copying)

    class Slow(torch.Tensor):
        """Copies from observations take 30 s, from actions 10 s."""

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.copy_:
                clock.now += 30 if args[1].is_floating_point() else 10
            return super().__torch_function__(function, types, args, kwargs or {})

    def choose(observation):
        clock.now += 40
        return torch.zeros(3, dtype=torch.int64).as_subclass(Slow)

    def step(action):
        clock.now += 20

    source = transfer.Source(torch.zeros(3, 4).as_subclass(Slow), step, [], threads=1)
    found = transfer.two_memories(source, choose, Loop("real", "port-cpu", "cpu", "pageable", 3))
    assert found.parts() == {"up": 30, "policy": 40, "down": 10, "step": 20}
    assert found.bytes == {"up": 48, "down": 24}


def test_a_loop_is_timed_as_it_is_and_in_parts_in_turn(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(transfer.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(timing, "calls_per_block", lambda *of: 5)
    done = []

    def run():
        clock.now += 2
        done.append("run")

    def parts():
        done.append("parts")
        return {"step": 0.5, "policy": 1.5}

    rows = transfer.taken_apart(transfer.Round(run, parts, threads=3, bytes={}), BLOCKS)
    assert [(row["part"], row["wall_s"], row["calls"]) for row in rows[:3]] == [
        ("loop", 10, 5),
        ("policy", 7.5, 5),
        ("step", 2.5, 5),
    ]
    assert {row["threads"] for row in rows} == {3}
    assert done[-10 * BLOCKS :] == BLOCKS * (5 * ["run"] + 5 * ["parts"])


def test_the_policy_is_the_same_for_a_seed_and_leaves_torch_s_own_numbers_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    observation = torch.linspace(-1, 1, 4000).reshape(1000, 4)
    first, second, other = (transfer.policy("cartpole", "cpu", seed)(observation) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert first.shape == (1000,)
    assert first.dtype == torch.int64
    assert set(first.tolist()) <= {0, 1}
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_policy_of_a_box_stays_in_its_bounds(monkeypatch):
    port = replace(envs.port("cartpole"), action=Box(-0.01, 0.01, (1,)))
    monkeypatch.setattr(envs, "port", lambda name: port)
    action = transfer.policy("cartpole", "cpu", 0)(torch.linspace(-50, 50, 4000).reshape(1000, 4))
    assert action.shape == (1000, 1)
    assert action.abs().max() == pytest.approx(0.01)


HTOD, DTOH = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)"
KERNEL, WITHIN = "void gemm<float>(int)", "Memcpy DtoD (Device -> Device)"


@pytest.mark.parametrize(
    ("of_the_device", "copies"),
    [([HTOD, KERNEL, DTOH], 2), ([KERNEL, WITHIN, "Memset (Device)"], 0), ([], None)],
)
def test_copies_are_counted_by_name_unless_the_profiler_sees_no_device(monkeypatch, of_the_device, copies):
    cpu, cuda = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    events = [SimpleNamespace(name=name, device_type=cuda) for name in of_the_device]
    events += [SimpleNamespace(name=HTOD, device_type=cpu)]  # the host's side of a copy is none

    class Profile:
        def __init__(self, activities):
            assert torch.profiler.ProfilerActivity.CUDA in activities

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def events(self):
            return events

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert transfer.copies_in(lambda: None) == copies


def test_cartpole_is_measured_at_the_note_s_size_and_in_full_at_four():
    sizes = {scale: config.load("cartpole", scale).transfer.num_envs for scale in ("quick", "full")}
    assert 8192 in sizes["quick"]
    assert set(sizes["full"]) == {128, 1024, 8192, 65536}


@pytest.fixture
def run(monkeypatch, tmp_path, settings):
    """Run the command line in this process, in another folder, with the settings given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(envs, "cuda_available", lambda: False)

    def run(*arguments, given=settings):
        monkeypatch.setattr(config, "load", lambda name, scale: given)
        monkeypatch.setattr(sys, "argv", ["run", "transfer", *arguments])
        command.run(command_line.main)

    return run


@pytest.mark.usefixtures("short_blocks")
def test_without_a_gpu_the_command_line_says_what_this_machine_cannot_tell(run, tmp_path, capsys):
    run("cartpole")
    frame, described = results.read(tmp_path / "results" / "cartpole" / "transfer.csv")
    assert list(frame.columns) == transfer.COLUMNS
    assert set(frame["part"]) == {"step", "host-copy", "policy", "loop"}
    assert set(frame["device"]) == {"cpu"}
    assert described["passed"] == shares.closes(shares.transfer_summary(frame))
    assert described["timing"]["min_block_s"] == 0.002
    printed = capsys.readouterr().out
    assert "up, down, and the loops with the policy on a GPU: not measured: needs a GPU" in printed
    assert "%" not in printed.split("note gymnasium-vector cpu B=64")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("parts", "verdict"), [(0.4, "the parts of the loops do NOT sum"), (0.5, "the parts of the loops sum")]
)
def test_parts_that_do_not_sum_to_the_loop_are_told_and_recorded(run, monkeypatch, tmp_path, capsys, parts, verdict):
    """Two parts of 0.5 s are a loop of 1 s; two of 0.4 s are not."""

    def measured(name, group, settings):
        seconds = {"loop": 1.0, "policy": parts, "step": parts} if group.loop != "note" else {"step": 1.0}
        same = {"environment": name, **vars(group)}
        del same["counted"]
        return [same | transfer.row(part, 0, 1, wall_s=wall_s) for part, wall_s in seconds.items()]

    monkeypatch.setattr(transfer, "measure", measured)
    run("cartpole", "--output", "rows.csv")
    assert results.read(tmp_path / "rows.csv")[1]["passed"] is (parts == 0.5)
    assert verdict in capsys.readouterr().out
