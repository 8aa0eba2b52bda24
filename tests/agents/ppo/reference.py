"""PPO's update in NumPy and float64, with every derivative written by hand: what the agents are compared with.

As in CleanRL's ppo.py and ppo_continuous_action.py (Huang et al., JMLR 2022), but for the bootstrap where an episode is
truncated. Two networks apart of tanh layers; one Discrete action, or a Box with free log_std.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Network = list[tuple[np.ndarray, np.ndarray]]  # weight [out, in] and bias [out] of each layer


def advantages(reward, value, bootstrap, terminated, truncated, gamma: float, gae_lambda: float):
    """Advantage and target [T, N] of reward, flags and bootstrap [T, N] and value [T + 1, N], one row at a time."""
    T, N = reward.shape
    advantage = np.zeros((T, N))
    for i in range(N):
        later = 0.0
        for t in reversed(range(T)):
            following = value[t + 1, i]
            if truncated[t, i]:
                following = bootstrap[t, i]
            if terminated[t, i]:
                following = 0.0
            if truncated[t, i] or terminated[t, i]:
                later = 0.0
            later = reward[t, i] + gamma * following - value[t, i] + gamma * gae_lambda * later
            advantage[t, i] = later
    return advantage, advantage + value[:T]


def forward(network: Network, x: np.ndarray) -> list[np.ndarray]:
    """The input and the outputs of every layer, the last one linear."""
    layers = [x]
    for number, (weight, bias) in enumerate(network):
        z = layers[-1] @ weight.T + bias
        layers.append(np.tanh(z) if number < len(network) - 1 else z)
    return layers


def backward(network: Network, layers: list[np.ndarray], slope: np.ndarray) -> list[np.ndarray]:
    """Derivatives by every weight and bias, in their order, from the derivative by the outputs."""
    found = []
    for number in reversed(range(len(network))):
        found = [slope.T @ layers[number], slope.sum(axis=0), *found]
        slope = slope @ network[number][0] * (1 - layers[number] ** 2)
    return found


@dataclass
class PPO:
    """Actor, critic, log_std (None: Discrete) and Adam's state."""

    actor: Network
    critic: Network
    log_std: np.ndarray | None
    clip: float = 0.2
    clip_value: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    norm_adv: bool = True

    def __post_init__(self):
        self.numbers = [part for layer in (*self.actor, *self.critic) for part in layer]
        if self.log_std is not None:
            self.numbers.append(self.log_std)
        self.first = [np.zeros_like(part) for part in self.numbers]
        self.second = [np.zeros_like(part) for part in self.numbers]
        self.steps = 0
        self.norms: list[float] = []

    def update(self, lr: float, obs, action, log_prob, advantage, target, value) -> None:
        """One minibatch of K rows."""
        gradient = self.gradient(obs, action, log_prob, advantage, target, value)
        self.norms.append(np.sqrt(sum((part**2).sum() for part in gradient)))
        scale = min(1.0, self.max_grad_norm / (self.norms[-1] + 1e-6))
        self.steps += 1
        for place, part in enumerate(gradient):
            part = part * scale
            self.first[place] = 0.9 * self.first[place] + 0.1 * part
            self.second[place] = 0.999 * self.second[place] + 0.001 * part**2
            mean, square = self.first[place] / (1 - 0.9**self.steps), self.second[place] / (1 - 0.999**self.steps)
            self.numbers[place] -= lr * mean / (np.sqrt(square) + 1e-5)

    def gradient(self, obs, action, log_prob, advantage, target, value) -> list[np.ndarray]:
        K = len(obs)
        if self.norm_adv:
            advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
        actor, critic = forward(self.actor, obs), forward(self.critic, obs)
        out, new_value = actor[-1], critic[-1][:, 0]
        if self.log_std is None:
            p = np.exp(out - out.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            taken = np.eye(out.shape[1])[action]
            new_log_prob = np.log((p * taken).sum(axis=1))
            by_out, entropy = taken - p, -(p * np.log(p)).sum(axis=1)
            entropy_by_out = -p * (np.log(p) + entropy[:, None])
        else:
            normal = (action - out) / np.exp(self.log_std)
            new_log_prob = (-0.5 * normal**2 - self.log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
            by_out, by_log_std = normal / np.exp(self.log_std), normal**2 - 1
            entropy_by_out = np.zeros_like(out)
        ratio = np.exp(new_log_prob - log_prob)
        clipped = np.clip(ratio, 1 - self.clip, 1 + self.clip)
        active = advantage * ratio <= advantage * clipped  # the smaller one of the objective is taken, and moves
        by_log_prob = np.where(active, -advantage * ratio, 0.0)[:, None] / K
        by_value = new_value - target
        if self.clip_value:
            change = np.clip(new_value - value, -self.clip, self.clip)
            held = (value + change - target) ** 2 > by_value**2
            by_value = np.where(held, np.where(np.abs(new_value - value) < self.clip, by_value, 0.0), by_value)
        slope = by_log_prob * by_out - self.ent_coef * entropy_by_out / K
        found = backward(self.actor, actor, slope)
        found += backward(self.critic, critic, self.vf_coef * by_value[:, None] / K)
        if self.log_std is not None:
            found.append((by_log_prob * by_log_std).sum(axis=0) - self.ent_coef)
        return found


def of(networks, learner: int = 0, **options) -> PPO:
    """The same networks in float64; their numbers are copied."""
    parts = {name: part[learner].double().numpy().copy() for name, part in networks.parts(networks.parameters).items()}

    def layers(network: str) -> Network:
        count = sum(name.startswith(network) for name in parts) // 2
        return [(parts[f"{network}.{k}.weight"], parts[f"{network}.{k}.bias"]) for k in range(count)]

    return PPO(layers("actor"), layers("critic"), parts.get("free"), **options)


def names(networks) -> Sequence[str]:
    """Of the networks' parts, in the order of `PPO.numbers`."""
    return sorted(networks.places, key=lambda name: name == "free")
