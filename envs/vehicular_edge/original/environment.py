"""The original as a PettingZoo environment; episode.py holds the model."""

import dataclasses
import inspect
from collections.abc import Mapping

import numpy as np
from gymnasium import logger
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box

from lockstep.extras import extra
from lockstep.reading import nearest

from ...checks import choice, integer
from ...noise import RESET, philox
from .. import observation, render
from ..params import AGENTS, LARGEST_SHARE, PRESETS, SWITCHES, Params, queue_shapes
from ..scenario import draw, pool_of, under
from .checks import check_range, numbers
from .episode import Episode
from .nodes import Network, column
from .observe import observe
from .scales import Scales

with extra("edge", of="the original of 'vehicular_edge'"):
    from pettingzoo import ParallelEnv


class VehicularEdge(ParallelEnv):
    """The environment, for two agents that see the same vector and earn the same reward.

    Args:
        scenario: a `scenario.Scenario`, or a list of them, of which an episode takes one (Q12); paths of scenario files
            do as well.
        params: None for those of the (first) scenario.
        indexed: keep lists of what a node was assigned, and means, instead of looking for them whenever they are
            needed. Changes no bit of any result.
        signed: actions lie in [-1, 1].
        render_mode: None, or "rgb_array" for `render`.

    Raises:
        ValueError: an action of the wrong shape, not finite or out of range; sizes of scenario and params differ, or a
            scenario holds what has no meaning.
    """

    metadata = {"name": "vehicular_edge", "render_modes": ["rgb_array"], "is_parallelizable": True}

    def __init__(
        self,
        scenario,
        params: Params | None = None,
        indexed: bool = False,
        signed: bool = False,
        render_mode: str | None = None,
    ):
        pool = pool_of(scenario)
        self.params = p = params or pool[0].params
        self.scenarios = [under(one, p, f"scenario {n}") for n, one in enumerate(pool)]
        choice("indexed", indexed, (True, False))
        choice("signed", signed, (True, False))
        self.indexed, self.signed = indexed, signed
        self.render_mode = choice("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.possible_agents = list(AGENTS)
        self.agents = []
        actions = Box(-1.0 if signed else 0.0, 1.0, (p.action_length,), np.float32)
        self._action_spaces = {agent: Box(actions.low, actions.high) for agent in AGENTS}
        self._observation_space = observation.space(p)
        self.state_space = Box(0.0, p.slots / (p.slots - 1), (2,), np.float64)
        self._networks = {}
        self._start(0)
        self._open(0)

    # ---- PettingZoo

    def action_space(self, agent: str) -> Box:
        return self._action_spaces[agent]

    def observation_space(self, agent: str) -> Box:
        return self._observation_space

    def reset(self, seed: int | None = None, options: dict | None = None):
        """Opens an episode; a seed restarts what lasts longer, too: the count of episodes and the running scales.

        Args:
            seed: 0 .. 2^64-1.
            options: there are none; ignored, as PettingZoo's interface has it.

        Returns:
            Observations [D] and empty infos by agent.
        """
        if seed is not None:
            self._start(integer("seed", seed, 0, 2**64 - 1))
        chosen = 0
        if not self.params.frozen_scenario:  # Q12
            chosen = int(philox((0, self._episode, 0, RESET), self._key)[0]) % len(self.scenarios)
        self._episode += 1
        self._open(chosen)
        self.agents = list(AGENTS)
        return self._for_agents(self.observe().astype(np.float32)), {agent: {} for agent in AGENTS}

    def step(self, actions: dict):
        """One slot. `actions` holds a vector [A] of each agent.

        Returns:
            Observations [D], rewards, terminated, truncated and infos by agent. An info has "admitted" tasks, "dropped"
            (tasks beyond J, beyond a cap, without an access edge), "energy" in J and "jain".
        """
        self._require_episode()
        if not isinstance(actions, Mapping):
            raise ValueError(f"actions must be a dict of vectors by agent, not {type(actions).__name__}")
        wrong = [f"unknown agent {agent!r}" for agent in actions if agent not in AGENTS]
        wrong += [f"no action of agent {agent!r}" for agent in AGENTS if agent not in actions]
        if wrong:
            wanted = " and ".join(map(repr, AGENTS))
            raise ValueError(f"{', '.join(wrong)}: give {wanted} a vector of {self.params.action_length} numbers each")
        for agent in AGENTS:
            self._check_vector(agent, actions[agent])
        return self._play(actions)

    def render(self) -> np.ndarray | None:
        """A picture [640, 960, 3] uint8 of where the episode is, with the links that the last step used.

        Without a render_mode there is a warning and no picture, as in Gymnasium.

        Raises:
            ImportError: matplotlib is not installed.
        """
        if self.render_mode is None:
            return logger.warn("render() draws nothing: no render_mode was given, such as render_mode='rgb_array'")
        shapes, used = queue_shapes(self.params), None
        queues = {name: column(self.episode.queues[name], "backlog").reshape(shapes[name]) for name in shapes}
        if self.episode.outcome is not None:
            used = [self.record[name] for name in ("rate_v2v", "rate_v2i")]
        return render.picture(self.episode.scenario, self.t, queues, used)

    def step_decoded(self, target, share):
        """One slot in integer form: options [Nc, J] in 0..O-1, and shares [A1] in 0..1e30, not yet divided."""
        self._require_episode()
        p = self.params
        target, share = numbers("target", target), numbers("share", share)
        if target.shape != (p.clients, p.tasks) or not np.issubdtype(target.dtype, np.integer):
            raise ValueError(f"target {target.dtype} {target.shape} must be integers {(p.clients, p.tasks)}")
        if share.shape != (p.share_length,):
            raise ValueError(f"share {share.shape} must be {(p.share_length,)}")
        check_range("target", target, 0, p.options - 1)
        check_range("share", share, 0, LARGEST_SHARE)
        return self._play({"target": target, "share": share})

    def state(self) -> np.ndarray:
        """[t/(T-1), truncated]."""
        return np.array([self.t / (self.params.slots - 1), float(self.t == self.params.slots)])

    def _play(self, action: dict):
        self.offloading(action)
        self.noma()
        self.queue_update()
        self.cost()
        self.episode.drift()
        reward = self.episode.reward()
        self.episode.enter(self.t + 1)
        truncated = self.t == self.params.slots
        if truncated:
            self.agents = []
        outcome = self.episode.outcome
        facts = {name: outcome[name] for name in ("dropped", "energy", "jain")}
        facts["admitted"] = outcome["tasks_admitted"]
        return (
            self._for_agents(self.observe().astype(np.float32)),
            dict.fromkeys(AGENTS, reward),
            dict.fromkeys(AGENTS, False),
            dict.fromkeys(AGENTS, truncated),
            {agent: dict(facts) for agent in AGENTS},
        )

    # ---- the parts of a slot, in their order

    def offloading(self, action: dict):
        """Decodes an action, raw or in integer form, and admits its tasks."""
        if "target" in action:
            target, share = action["target"], action["share"]
        else:
            target, share = self.decode(*(action[agent] for agent in AGENTS))
        self.episode.offloading(target.tolist(), share.tolist())

    def decode(self, offloading, allocation) -> tuple[np.ndarray, np.ndarray]:
        """Options [Nc, J] and shares [A1] of raw vectors [A] (README.md, 2.1)."""
        p = self.params
        vectors = (np.asarray(vector, dtype=np.float64) for vector in (offloading, allocation))
        if self.signed:
            vectors = (np.clip((vector + 1.0) / 2.0, 0.0, 1.0) for vector in vectors)
        choice, share = vectors
        choice = choice[: p.target_length].reshape(p.clients, p.tasks)
        if p.cloud_only_at_one:  # Q1
            target = np.floor(choice * (p.options - 1))
        else:
            target = np.minimum(np.floor(choice * p.options), p.options - 1)
        return target.astype(np.int32), share[: p.share_length]

    def noma(self):
        """Rates of everybody who sends, at every receiver."""
        self.episode.noma()

    def queue_update(self):
        """Real and virtual queues."""
        self.episode.queue_update()

    def cost(self) -> float:
        return self.episode.cost()

    # ---- what can be seen

    @property
    def t(self) -> int:
        return self.episode.t

    def observe(self) -> np.ndarray:
        """The vector that both agents see, [D] in float64."""
        return observe(self.episode)

    @property
    def record(self) -> dict:
        """The last slot of this episode; RuntimeError where none was played yet.

        "in", "out", "dep": Mbit by family, in the shapes of the queues; "delay": the "in" and "out" of the virtual one.
        "rate_v2v" [Nc, Ns], "rate_v2i" [Nc, Ne]: bit/s, 0 where nothing is sent. "target" [Nc, J]: options as tried,
        0 where there is no task; "admitted" [Nc, J]. "costs": mW, GHz or MB m by kind. "cost", "drift", "success",
        "reward", "energy" (J), "jain": numbers; "dropped": tasks beyond J, beyond a cap, without an access edge.
        """
        p, episode = self.params, self.episode
        if episode.outcome is None:
            raise RuntimeError("no slot of this episode was played yet: call step() first")
        shapes, delay = queue_shapes(p), episode.virtual["delay"]
        target, admitted = np.zeros((p.clients, p.tasks), np.int32), np.zeros((p.clients, p.tasks), bool)
        for i, tasks in enumerate(episode.assigned.played):
            for j, task in enumerate(tasks):
                target[i, j], admitted[i, j] = task.option, task.admitted
        flows = {
            name: {family: column(queues, part).reshape(shapes[family]) for family, queues in episode.queues.items()}
            for name, part in (("in", "arrived"), ("out", "capacity"), ("dep", "departed"))
        }
        return {
            **episode.outcome,
            **flows,
            "delay": {"in": column(delay, "arrived"), "out": column(delay, "capacity")},
            "rate_v2v": _rates(episode.network.servers, p.clients),
            "rate_v2i": _rates(episode.network.edges, p.clients),
            "target": target,
            "admitted": admitted,
            "costs": {kind: np.array(values, dtype=np.float64) for kind, values in episode.costs.items()},
        }

    # ---- inside

    def _start(self, seed: int):
        self._key, self._episode = seed, 0
        self._scales = Scales(self.params, self.scenarios[0].first_scales)

    def _open(self, chosen: int):
        if chosen not in self._networks:
            self._networks[chosen] = Network(self.scenarios[chosen], self.params)
        self.episode = Episode(self._networks[chosen], self.params, self._scales, self.indexed)

    def _for_agents(self, observation: np.ndarray) -> dict:
        return {agent: observation.copy() for agent in AGENTS}

    def _require_episode(self):
        if not self.agents:
            raise ResetNeeded("no episode is open: call reset() first")

    def _check_vector(self, agent: str, vector):
        vector, wanted = numbers(f"action of agent {agent!r}", vector), (self.params.action_length,)
        if vector.shape != wanted:
            raise ValueError(f"action of agent {agent!r} has shape {vector.shape}, not {wanted}")
        check_range(f"action of agent {agent!r}", vector, -1 if self.signed else 0, 1)


def _rates(receivers: list, clients: int) -> np.ndarray:
    """bit/s [Nc, receivers]."""
    rates = np.zeros((clients, len(receivers)))
    for receiver in receivers:
        for i, mbps in receiver.rates.items():
            rates[i, receiver.index] = 1e6 * mbps
    return rates


def make(
    preset: str | None = None,
    traffic: str = "arterial",
    scenario=None,
    index: int = 0,
    seed: int = 264,
    indexed: bool = False,
    signed: bool = False,
    render_mode: str | None = None,
    **params,
) -> VehicularEdge:
    """The original on a scenario that is drawn, or on given ones.

    Args:
        preset: "physical" (what None draws) or "original". With a given scenario, whose own parameters hold otherwise,
            it sets the switches alone.
        traffic: the map to draw on: "arterial", "city", "dense" or "sparse".
        scenario: a `scenario.Scenario`, the path of a scenario file, or a list of them; traffic, index and seed then
            play no part.
        index, seed: of the drawing, see `scenario.draw`; those of `envs.make` are 0, 1, ... and `scenario_seed`.
        indexed, signed, render_mode: as in `VehicularEdge`.
        **params: single fields of `params.Params`.

    Raises:
        ValueError: an unknown preset, map or parameter, or a value that is not allowed; names it.
    """
    choice("preset", preset, (None, *PRESETS))
    known = [field.name for field in dataclasses.fields(Params)]
    options = [name for name in inspect.signature(make).parameters if name != "params"]
    for name in params:
        if name not in known:
            raise ValueError(f"no parameter or option {name!r}{nearest(name, [*options, *known])}")
    if scenario is None:
        pool = [draw(Params(**PRESETS[preset or "physical"] | params), traffic, index, seed)]
    else:
        pool = pool_of(scenario)
        if preset is not None:
            params = {name: name in PRESETS[preset] for name in SWITCHES} | params
    return VehicularEdge(pool, dataclasses.replace(pool[0].params, **params), indexed, signed, render_mode)
