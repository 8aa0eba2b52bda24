"""Proximal policy optimisation that never leaves the device (Schulman et al., 2017; details as in CleanRL).

    python -m lockstep.agents.ppo cartpole --recipe solve --seed 1 --output runs/cartpole

To read from top to bottom: `config`, its settings; `algorithm`, a run and its iteration; `parts/rollout_buffer`, the
steps that it trains on; `update`, the losses and Adam, which `autograd` does for any network and `compiled` in C++.
"""

from pathlib import Path

import torch

from lockstep.agents.run import config as configuration
from lockstep.agents.run import training

from .algorithm import PPO
from .config import CLEANRL, RECIPES, Config

__all__ = ["CLEANRL", "PPO", "RECIPES", "Config", "config_of", "load", "train"]


def config_of(environment: str, recipe: str | Path | None = None, **changes) -> Config:
    """A recipe's configuration with single fields replaced, as `run.config.config_of` says."""
    return configuration.config_of(PPO, environment, recipe, **changes)


def train(environment, config: Config = CLEANRL, device: torch.device | str = "cpu", **options) -> PPO:
    """`training.train` with this algorithm."""
    return training.train(PPO, environment, config, device, **options)


def load(path: str | Path, device: torch.device | str = "cpu", environment=None) -> PPO:
    """`training.load` with this algorithm: what a checkpoint holds, ready for `act`."""
    return training.load(PPO, path, device, environment)
