"""The animation in docs/marine.md: an episode among vortices under a potential field, stepped by the port.

python -m lockstep.paper.marine_navigation.animation            rewrite animation.gif
python -m lockstep.paper.marine_navigation.animation --check    fail if it does not show what the code does
"""

from pathlib import Path

from PIL import Image

from lockstep import envs
from lockstep.envs.marine_navigation import policies
from lockstep.envs.marine_navigation.scenario import published
from lockstep.experiments import command
from lockstep.paper.animation import Animation
from lockstep.paper.marine_navigation.scenes import Trajectory, animate

SETTING, SEED = (5, 6, 6, 40.0), 6  # robots, cores, obstacles, least distance in m; of the published draws
EVERY = 2  # steps from one picture to the next


def episode() -> Trajectory:
    """An episode of one environment of the port."""
    params = envs.port("marine_navigation").make_params("corrected", {"version": "kinematic"})
    (scenario,) = published(SEED, [SETTING], params)
    options = {"version": "kinematic", "scenarios": [scenario], "autoreset_mode": "Disabled"}
    env = envs.make("marine_navigation", 1, seed=SEED, **options)
    observation, info = env.reset()
    states = [state(env, info)]
    while info["active"].any():
        observation, *_, info = env.step(policies.apf(observation, env.params))
        states.append(state(env, info))
    return Trajectory.of(env.params, scenario, states)


def state(env, info: dict) -> dict:
    """The fields of the one environment as arrays."""
    fields = {name: env.fields()[name][0].numpy().copy() for name in ("pose", "hit_robot", "hit_obstacle")}
    return fields | {"active": info["active"][0].numpy().copy()}


def pictures() -> list[Image.Image]:
    """A picture after every second step."""
    return list(map(Image.fromarray, animate(episode(), EVERY)))


ANIMATION = Animation(
    module="lockstep.paper.marine_navigation.animation",
    file=Path("paper", "marine_navigation", "animation.gif"),
    pictures=pictures,
    frame_ms=80,
    colours=64,
)

if __name__ == "__main__":
    command.run(lambda: ANIMATION.main(__doc__))
