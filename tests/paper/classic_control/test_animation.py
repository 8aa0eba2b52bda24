import pytest
import torch

from lockstep import envs

pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")

from PIL import Image

from lockstep.experiments import ROOT, UserError
from lockstep.paper.classic_control import animation


@pytest.mark.slow
def test_the_animation_in_this_tree_shows_what_the_code_does():
    assert not animation.stale(ROOT), "run python -m lockstep.paper.classic_control.animation"


def test_the_page_on_environments_shows_it_and_it_is_no_burden():
    assert f"](../{animation.FILE.as_posix()})" in (ROOT / "docs" / "use.md").read_text()
    assert (ROOT / animation.FILE).stat().st_size < 1.5e6
    with Image.open(ROOT / animation.FILE) as gif:
        assert gif.n_frames == animation.STEPS
        assert gif.info["loop"] == 0  # for ever


def played(name: str, steps: int) -> dict:
    """The states of 64 environments after `steps` under the policy of the animation."""
    env = envs.make(name, 64, seed=1)
    obs, _ = env.reset()
    for _ in range(steps):
        obs, *_ = env.step(animation.POLICIES[name](obs))
    return {key: float(value) for key, value in env.statistics().items()} | {"obs": obs}


def test_every_policy_belongs_to_an_environment():
    assert set(animation.POLICIES) <= set(envs.names())


@pytest.mark.parametrize(
    ("name", "steps", "fastest", "slowest"),
    [
        ("cartpole", 500, 500, 500),  # never falls
        ("mountain_car", 125, 113, 125),
        ("mountain_car_continuous", 111, 105, 111),
        ("acrobot", 500, 20, 500),
    ],
)
def test_policies_solve_their_tasks(name, steps, fastest, slowest):
    told = played(name, steps)
    assert told["episodes"] >= 64
    assert fastest <= told["length_min"] <= told["length_max"] <= slowest
    assert name != "acrobot" or told["length_mean"] < 100  # the task counts as solved at a return of -100


def test_the_pendulum_is_swung_up_and_held():
    cosine = played("pendulum", 199)["obs"][:, 0]
    assert torch.all(cosine > 0.999)


def pictures(*off: int) -> list[Image.Image]:
    """Three pictures of 10 x 10 pixels, each of its own grey, and in each so many pixels of another colour."""
    drawn = []
    for k, count in enumerate(off or (0, 0, 0)):
        drawn.append(Image.new("RGB", (10, 10), (100 + 10 * k,) * 3))
        for i in range(count):
            drawn[-1].putpixel((i % 10, i // 10), (250, 0, 0))
    return drawn


def test_pictures_are_compared_pixel_by_pixel():
    same = animation.gif(pictures())
    assert animation.gif(pictures()) == same
    assert animation.differing(same, same) == 0
    assert animation.differing(same, animation.gif(pictures(0, 7, 3))) == pytest.approx(0.07)
    assert animation.differing(same, animation.gif(pictures()[:2])) == 1


def test_a_stale_file_is_noticed_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(animation, "pictures", pictures)
    file = tmp_path / animation.FILE
    file.parent.mkdir(parents=True)
    assert animation.stale(tmp_path)
    file.write_bytes(animation.gif(pictures(50, 0, 0)))
    assert animation.stale(tmp_path)
    animation.update(tmp_path)
    assert file.read_bytes() == animation.gif(pictures())
    assert not animation.stale(tmp_path)


def test_check_fails_where_the_file_is_stale(monkeypatch):
    monkeypatch.setattr(animation, "pictures", pictures)
    monkeypatch.setattr("sys.argv", ["animation", "--check"])
    before = (ROOT / animation.FILE).read_bytes()
    with pytest.raises(
        UserError, match="animation.gif does not show what the code does; run python -m lockstep.paper.classic"
    ):
        animation.main()
    assert (ROOT / animation.FILE).read_bytes() == before
