"""The animation in the environment's README: an episode in the city under the greedy rule, stepped by the port.

python -m lockstep.paper.vehicular_edge.animation            rewrite animation.gif
python -m lockstep.paper.vehicular_edge.animation --check    fail if it does not show what the code does
"""

from pathlib import Path

import numpy as np
from PIL import Image

from lockstep import envs
from lockstep.envs.vehicular_edge import policies
from lockstep.experiments import command
from lockstep.paper.animation import Animation

SEED = 0


def pictures() -> list[Image.Image]:
    """A picture before each slot, and one after the last."""
    options = {"traffic": "city", "scenarios": 1, "trace": True, "autoreset_mode": "Disabled"}
    env = envs.make("vehicular_edge", 1, seed=SEED, **options)
    env.reset()
    noise = policies.Noise(SEED, np.zeros(1, np.int64), np.zeros(1, np.int64))  # of which this policy takes none
    drawn = []
    for t in range(env.params.slots + 1):
        drawn += map(Image.fromarray, env.render())
        if t < env.params.slots:
            env.step(policies.greedy(policies.view_of_port(env), noise))
    return drawn


ANIMATION = Animation(
    module="lockstep.paper.vehicular_edge.animation",
    file=Path("paper", "vehicular_edge", "animation.gif"),
    pictures=pictures,
    frame_ms=250,
    colours=192,
)

if __name__ == "__main__":
    command.run(lambda: ANIMATION.main(__doc__))
