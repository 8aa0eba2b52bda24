"""Policies of policies.csv as one row per setting."""

from collections.abc import Mapping

import pandas as pd

from lockstep import paper
from lockstep.experiments.curves import stratified_interval, wilson
from lockstep.paper import quantities
from lockstep.paper.families import about
from lockstep.paper.typeset import missing

NAME = "marine_navigation"
PLAYED = ["version", "preset", "robots", "cores", "obstacles", "policy", "variant", "risk", "form", "device"]
CORRECTED = "corrected"
POLICIES = {  # label, colour, marker
    "apf": ("potential field (APF)", "#0072B2", "o"),
    "rvo": ("velocity obstacles (RVO)", "#009E73", "s"),
    "straight": ("straight to the goal", "#E69F00", "^"),
    "random": ("random", "#CC79A7", "v"),
    "adaptive_iqn": ("adaptive IQN", "#D55E00", "D"),
    "ac_iqn": ("AC-IQN", "#D55E00", "P"),
    "iqn": ("IQN", "#AA4422", "D"),
    "dqn": ("DQN", "#56B4E9", "X"),
    "rainbow": ("Rainbow", "#6655CC", "p"),
    "ddpg": ("DDPG", "#117733", "<"),
    "sac": ("SAC", "#8a6d00", ">"),
}


def fullest(datasets: list, experiment: str) -> list:
    """The run of an experiment that has the most rows, of agents one for each device that they were trained on."""
    runs = sorted(quantities.of(datasets, {"experiment": experiment}), key=lambda run: len(run.frame))
    found = {trained_on(run): run for run in runs}
    return [found[device] for device in sorted(found, reverse=True)]  # a GPU's first


def trained_on(run) -> str:
    """The device of agents, "" of policies without learning, of which nothing depends on the machine."""
    return run.frame["device"].iloc[0] if "part" in run.frame else ""


def look(policy: str) -> tuple[str, str, str]:
    """Label, colour and marker of a policy; an unknown one in grey under its own name."""
    return POLICIES.get(policy, (policy.replace("_", " "), "#777777", "h"))


def name(row: Mapping) -> str:
    """A policy by the name that POLICIES and published figures have for it; an agent's has its risk."""
    return f"adaptive_{row['policy']}" if row["risk"] == "adaptive" else row["policy"]


def words(row: Mapping) -> str:
    """A policy with all that tells it from others: an agent's risk, and the variant that it was trained as."""
    risk = "" if missing(row["risk"]) or row["risk"] in ("adaptive", "1") else f"risk {row['risk']}"
    return ", ".join(filter(None, [look(name(row))[0], risk, variant(row)]))


def variant(row: Mapping) -> str:
    """The variant that an agent was trained as; empty of its settings as they are, and of a policy without learning."""
    return "" if missing(row["variant"]) or row["variant"] == CORRECTED else row["variant"]


@paper.once
def played(run) -> pd.DataFrame:
    """One row per setting, policy and form: `success` with its 95 % interval, means over episodes, and `published`.

    success: the share of the episodes, with Wilson's interval; of several seeds of an agent the interquartile mean of
    their shares, with a bootstrap interval. time_s, energy: means over episodes of the robots that reached their goals.
    hit_robot, hit_obstacle: shares of the robots. seeds, env_steps: of training.
    """
    frame = run.frame if "part" not in run.frame else run.frame[run.frame["part"] == "final"]
    absent = {column: None for column in ("variant", "risk", "seed", "env_steps") if column not in frame}
    rows = []
    for key, part in worded(frame.assign(**absent)).groupby(PLAYED, sort=False, dropna=False):
        row = dict(zip(PLAYED, key, strict=True)) | {"episodes": len(part), "env_steps": part["env_steps"].max()}
        of_seeds = part.groupby("seed")["success"].mean()
        row |= {"seeds": len(of_seeds)}
        several = len(of_seeds) > 1
        succeeded = stratified_interval([of_seeds]) if several else wilson(int(part["success"].sum()), len(part))
        row |= dict(zip(("success", "success_low", "success_high"), succeeded, strict=True))
        row |= {"time_s": part["reached_time_s"].mean(), "energy": part["reached_energy"].mean()}
        row |= {
            kind: part[kind].sum() / (len(part) * row["robots"]) for kind in ("reached", "hit_robot", "hit_obstacle")
        }
        rows.append(row | {"published": published(row)})
    columns = [*PLAYED, "seeds", "env_steps", "episodes", "success", "success_low", "success_high", "published"]
    found = pd.DataFrame(rows, columns=[*columns, "time_s", "energy", "reached", "hit_robot", "hit_obstacle"])
    return found.assign(environment=run.provenance["environment"])


@paper.once
def curves(run) -> pd.DataFrame:
    """Success along the training of each agent: a row per seed and point, over all settings."""
    keys = ["version", "preset", "variant", "policy", "risk", "seed", "env_steps"]
    frame = worded(run.frame[run.frame["part"] == "curve"])
    return frame.groupby(keys, sort=False, dropna=False)["success"].mean().reset_index()


@paper.once
def batches(run) -> pd.DataFrame:
    """Success along the training of agents that learn from batches of several sizes: a row per seed and point."""
    frame = run.frame[run.frame["part"] == "curve"]
    if "batch_size" not in frame:  # of older code
        return frame.iloc[:0].assign(batch_size=[], wall_s=[])
    keys = ["version", "preset", "policy"]
    own = frame[frame["variant"] == CORRECTED].groupby(keys)["batch_size"].first().rename("own").reset_index()
    frame = frame.merge(own, on=keys)
    other = frame["batch_size"] != frame["own"]
    compared = frame[keys].merge(frame.loc[other, keys].drop_duplicates(), on=keys, how="left", indicator=True)
    frame = frame[(compared["_merge"] == "both") & (other | (frame["variant"] == CORRECTED))]
    keys += ["batch_size", "seed", "env_steps"]
    return frame.groupby(keys, sort=False)[["success", "wall_s"]].mean().reset_index()


def common(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without variants that one agent alone was trained as."""
    agents = frame.groupby("variant")["policy"].transform("nunique")
    return frame[(frame["variant"] == CORRECTED) | (agents > 1)]


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with risks as words, since a column of shares alone is read as numbers."""
    shares = (None if missing(risk) else risk if risk == "adaptive" else f"{float(risk):g}" for risk in frame["risk"])
    return frame.assign(risk=pd.Series(list(shares), index=frame.index, dtype=object))


def published(row: dict) -> float | None:
    """The published share of successes of a policy in a setting, under the preset that is like the published code."""
    known = about(NAME)["published"].get(row["version"])
    setting = [int(row[name]) for name in ("robots", "cores", "obstacles")]
    if known is None or variant(row) or row["preset"] != "original" or setting not in known["settings"]:
        return None
    shares = known["success"].get(name(row))
    return shares and shares[known["settings"].index(setting)]
