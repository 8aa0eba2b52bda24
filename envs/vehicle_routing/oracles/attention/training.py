"""Training of the attention model on instances drawn from a city (README.md, 5.4).

Axes: B problems, S walks of each, L selections, N nodes.
"""

import dataclasses
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.agents.run import checkpoint

from ....checks import find_device, integer
from ...params import TICKS, Params, make_params
from ...scenario import Scenario, city
from ...windows import NO_SHIFT, PRESHIFTS, SHIFTS, preshifted, shifted
from ..insertion import Insertion
from . import fused
from .network import CLIP, Network, Shape, moves
from .problems import Nodes, places

SIZES = (5, 10, 20, 30)  # requests of the problems on which a network is judged
JUDGED = 100  # problems of each size
VALIDATION = 2**32  # seed of the validation's problems, which no training has
SAVE_S = 10.0  # from one checkpoint to the next
GAIN_MIN = 10.0  # by which gains are scaled, times the root of the requests
CURVE = 20  # points of the validation curve
BUDGET = ("minutes", "steps")  # of a configuration: a training that goes on may be given another one
COUNTERS = ("step", "instances", "used", "seconds")


@dataclass(frozen=True)
class Config:
    """A training.

    Attributes:
        preset: of the environment: whose mask the walks follow.
        requests: of a batch's problems, 1 up to so many; exactly so many with `full_size`.
        batch: requests of a batch, in all its problems.
        samples, learned: walks drawn of each problem, and how many of them enter, half the best, half the worst.
        minutes: of all threads of a CPU, or of a GPU; the rate of learning falls linearly over them.
        steps: updates, in place of minutes; 0: minutes count.

    Raises:
        ValueError: a budget or seed that is none; names it.
    """

    shape: Shape = field(default_factory=Shape)
    preset: str = "corrected"
    requests: int = 30
    full_size: bool = False
    batch: int = 1000
    samples: int = 16
    learned: int = 4
    learning_rate: float = 1e-3
    minutes: float = 10.0
    steps: int = 0
    seed: int = 0

    def __post_init__(self):
        if not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes={self.minutes} must be a positive number")
        integer("steps", self.steps, 0, 2**31 - 1)
        integer("seed", self.seed, 0, 2**63 - 1)


CONFIGS = {
    "small": Config(Shape(width=64, layers=2, heads=4, ff=256), minutes=15.0),
    "large": Config(batch=16_000, learning_rate=3e-4, minutes=600.0),
    "published": Config(
        Shape(norm="batch", pairs=False, legs=False, raw=True), preset="original", full_size=True, batch=1920,
        learning_rate=1e-4,
    ),
}  # fmt: skip


def world(preset: str, requests: int = 30, scenario: Scenario | None = None) -> tuple[Params, Scenario]:
    """Parameters of a preset, and a city."""
    params = make_params(preset, requests=requests)
    return params, scenario or city(params=params)


def drawn(rng: np.random.Generator, scenario: Scenario, params: Params, B: int, n: int) -> Nodes:
    """B problems of n travellers each, with pre-shifts; half of the requests are shifted by any action."""
    traveller = rng.random((B, scenario.requests)).argsort(axis=1)[:, :n]
    trip = (rng.random((B, n)) * scenario.trip_count[traveller]).astype(np.int64)
    earlier, later = np.array(PRESHIFTS)[rng.integers(0, len(PRESHIFTS), (2, B, n))] * TICKS
    action = np.where(rng.random((B, n)) < 0.5, rng.integers(0, len(SHIFTS), (B, n)), NO_SHIFT)
    rows = shifted(preshifted(scenario.trip[traveller, trip], earlier, later, params), SHIFTS[action], params)
    zone, earliest, latest = np.moveaxis(rows.reshape(B, 2 * n, 3), -1, 0)
    demand, service = scenario.demand[traveller, trip], scenario.service[traveller, trip].reshape(B, 2 * n)
    demand = np.stack([demand, -demand], axis=-1).reshape(B, 2 * n)
    depot = (scenario.depot, 0, params.horizon_ticks, 0, 0)
    columns = zip((zone, earliest, latest, demand, service), depot, strict=True)
    columns = [np.insert(column, 0, of_depot, axis=1) for column, of_depot in columns]
    return Nodes.of(*columns, np.ones((B, 2 * n + 1), bool))


def log_likelihood(
    network: Network, travel: Tensor, nodes: Nodes, keys: Tensor, walk: Tensor, trace: fused.Trace
) -> Tensor:
    """Log-probabilities [B, S] of walks, all selections of a problem at once.

    Args:
        walk: [B, S, L + 1].
        trace: of these walks, [B, S, L + 1, ...].
    """
    B, S, L = walk.shape[0], walk.shape[1], walk.shape[2] - 1
    N, d, heads = nodes.zone.shape[1], network.shape.width, network.shape.heads
    bit = torch.arange(32, dtype=torch.int32, device=walk.device)
    allowed = (trace.masks[:, :, :L, :, None] >> bit & 1).bool().flatten(3)[..., :N].flatten(1, 2)  # [B, S L, N]
    # Only where there is a choice: those selections come first, as many as the problem with the most has.
    choices = allowed.sum(-1) > 1
    order = choices.int().argsort(dim=1, descending=True, stable=True)[:, : int(choices.sum(1).max())]
    choices = choices.gather(1, order)

    def there(part: Tensor) -> Tensor:
        part = part.flatten(1, 2)
        index = order.view(*order.shape, *[1] * (part.dim() - 2)).expand(-1, -1, *part.shape[2:])
        return part.gather(1, index)

    at, to, asked = there(walk[:, :, :-1]), there(walk[:, :, 1:]), there(trace.asked[:, :, :L])
    allowed = allowed.gather(1, order.unsqueeze(-1).expand(-1, -1, N))
    allowed[..., 0] |= ~choices  # so that no row is empty
    key, value, pointer, query = keys.split(d, -1)
    query = query.gather(1, at.unsqueeze(-1).expand(-1, -1, d)) + asked @ network.context
    of_heads = [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value)]
    glimpse = F.scaled_dot_product_attention(*of_heads, attn_mask=allowed.unsqueeze(1), scale=1.0)
    logit = glimpse.transpose(1, 2).flatten(2) @ pointer.transpose(1, 2)
    if network.legs is not None:
        clock = asked[..., 1:2] * network.params.horizon_ticks
        zone = nodes.zone.long()
        leg = travel[zone.gather(1, at).unsqueeze(-1), zone.unsqueeze(1)]
        windows = (nodes.earliest.unsqueeze(1), nodes.latest.unsqueeze(1))
        logit = logit + moves(leg, clock, *windows, logit.dtype) @ network.legs
    likelihood = (CLIP * logit.tanh()).masked_fill(~allowed, -torch.inf).log_softmax(-1)
    chosen = likelihood.gather(-1, to.unsqueeze(-1))[..., 0].masked_fill(~choices, 0.0)
    return torch.zeros(B, S, dtype=chosen.dtype, device=walk.device).scatter_add(1, order // L, chosen)


class Training:
    """A training that goes on from its checkpoint, if there is one.

    Args:
        folder: of the checkpoint.

    Attributes:
        used: seconds of the budget so far; seconds: on the clock.
        curve: rows of seconds, instances, and mean cost over that of insertion, less 1, by SIZES.
        budgets: rows of the update from which on a budget held, its minutes and its steps.

    Raises:
        ValueError: a device that is none, fewer than one thread, or a checkpoint that is not of this training.
    """

    def __init__(self, config: Config, folder: Path, scenario: Scenario | None = None, device="cpu", threads: int = 1):
        torch.manual_seed(config.seed)
        self.config, self.path = config, Path(folder) / "training.ckpt"
        self.device, self.threads = find_device(device), integer("threads", threads, 1, 1024)
        self.params, self.scenario = world(config.preset, config.requests, scenario)
        self.travel = torch.from_numpy(np.array(self.scenario.travel)).to(self.device)
        self.network = Network(config.shape, self.params, self.scenario.travel).to(self.device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        self.rng = np.random.default_rng(config.seed)
        self.step = self.instances = 0
        self.used = self.seconds = 0.0
        self.curve: list[list[float]] = []
        self.budgets: list[list[float]] = []
        if self.path.exists():
            self.restore(checkpoint.load(self.path))
        budget = [getattr(config, name) for name in BUDGET]
        if not self.budgets or self.budgets[-1][1:] != budget:
            self.budgets.append([self.step, *budget])

    # ---- one update

    def update(self):
        """Draws problems and walks, and makes walks likelier that cost less than their problem's mean (REINFORCE).

        Only the best and the worst walks enter: the others tell little, and cost as much.
        """
        c = self.config
        n = c.requests if c.full_size else math.ceil(c.requests * math.sqrt(self.rng.random()))
        B = max(16, c.batch // n)
        nodes = self.moved(drawn(self.rng, self.scenario, self.params, B, n))
        shape = B * c.samples, places(self.params, 2 * n + 1)
        uniform = torch.from_numpy(self.rng.random(shape, dtype=np.float32)).to(self.device)
        keys = self.network(nodes, statistics=True)
        with torch.no_grad():
            given = (self.network, self.travel, nodes, keys.detach(), c.samples, uniform)
            answers, trace = fused.decode(*given, trace=True)
        cost = answers.cost.view(B, c.samples).to(keys.dtype) / TICKS
        order, half = cost.argsort(dim=1, stable=True), c.learned // 2
        kept = torch.cat([order[:, : c.learned - half], order[:, c.samples - half :]], 1)
        gain = (cost.mean(1, keepdim=True) - cost).gather(1, kept)
        row = kept + c.samples * torch.arange(B, device=self.device)[:, None]
        trace = fused.Trace(trace.masks[row], trace.asked[row])
        likelihood = log_likelihood(self.network, self.travel, nodes, keys, answers.walk[row].long(), trace)
        loss = -(gain * likelihood).mean() / (GAIN_MIN * math.sqrt(n))
        for group in self.optimiser.param_groups:
            group["lr"] = c.learning_rate * max(1 - self.progress, 0.01)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.step, self.instances = self.step + 1, self.instances + B

    def moved(self, nodes: Nodes) -> Nodes:
        return Nodes(*(column.to(self.device) for column in nodes))

    # ---- all of them

    @property
    def progress(self) -> float:
        """Share of the budget that is used."""
        c = self.config
        return self.step / c.steps if c.steps else self.used / (60 * c.minutes)

    def clock(self) -> float:
        """Seconds of the budget's clock: a CPU's own divided by its threads, so that other work does not count."""
        return time.process_time() / self.threads if self.device.type == "cpu" else time.perf_counter()

    def run(self, told=print):
        """Trains until the budget is used, and saves every ten seconds and at the end."""
        torch.set_num_threads(self.threads)
        judge = Judge(self)
        clock, began, saved = self.clock(), time.perf_counter(), time.perf_counter()
        used, seconds = self.used, self.seconds
        due = len(self.curve) / CURVE
        while self.progress < 1:
            self.update()
            self.used, self.seconds = used + self.clock() - clock, seconds + time.perf_counter() - began
            over = self.progress >= 1
            if over or self.progress >= due:
                due = math.floor(self.progress * CURVE + 1) / CURVE
                self.curve.append([round(self.seconds, 1), self.instances, *judge.excess()])
                told(f"{self.used:.0f} s, {self.step} updates, {self.instances} problems: {self.curve[-1][2:]}")
            if over or time.perf_counter() - saved > SAVE_S:
                checkpoint.save(self.path, self.state())
                saved = time.perf_counter()

    def state(self) -> dict:
        """The state that `restore` takes."""
        return {
            "config": dataclasses.asdict(self.config), "network": dict(self.network.state_dict()),
            "optimiser": self.optimiser.state_dict(), "rng": json.dumps(self.rng.bit_generator.state),
            "curve": self.curve, "budgets": self.budgets, **{name: getattr(self, name) for name in COUNTERS},
        }  # fmt: skip

    def restore(self, state: dict):
        """Goes on from a state, perhaps with another budget.

        Raises:
            ValueError: it is of another configuration, or lacks something; names the first field.
        """
        where, config = f"checkpoint {self.path}", {"config": {}}
        checkpoint.require_like(state, config, where)
        for name, own in dataclasses.asdict(self.config).items():
            found = state["config"].get(name)
            if found != own and name not in BUDGET:
                raise ValueError(
                    f"{where}: {name} is {found!r}, the configuration has {own!r}; "
                    f"choose another folder, or {name}={found!r}"
                )
        checkpoint.require_like(state, self.state() | config, where)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.curve, self.budgets = state["curve"], state["budgets"]
        for name in COUNTERS:
            setattr(self, name, state[name])


class Judge:
    """Greedy walks on problems of SIZES requests that no training has, against insertion."""

    def __init__(self, training: Training):
        self.training, self.problems, self.insertion = training, {}, {}
        rng = np.random.default_rng(VALIDATION)
        for n in SIZES:
            if n <= training.config.requests:
                nodes = drawn(rng, training.scenario, training.params, JUDGED, n)
                columns = [column.numpy() for column in nodes]
                self.problems[n] = training.moved(nodes)
                self.insertion[n] = (
                    Insertion(training.params, training.scenario.travel).solve(*columns)[0].mean().item()
                )

    def excess(self) -> list[float]:
        """Mean cost over that of insertion, less 1, by SIZES."""
        of, found = self.training, []
        of.network.eval()
        with torch.no_grad():
            for n, nodes in self.problems.items():
                answers, _ = fused.decode(of.network, of.travel, nodes, of.network(nodes))
                found.append(round(float(answers.cost.double().mean()) / self.insertion[n] - 1, 4))
        of.network.train()
        return found
