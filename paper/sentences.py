"""Sentences on what each machine found, for the abstract and for the chapters that begin with them."""

import html
import itertools
from collections import Counter
from collections.abc import Callable, Collection

import pandas as pd

from lockstep import envs, paper
from lockstep.experiments import catalogue, conformance, crossing
from lockstep.experiments.bench.timing import ENOUGH
from lockstep.paper import NOT_MEASURED, families, quantities
from lockstep.paper.common import learning
from lockstep.paper.report import Report
from lockstep.paper.typeset import missing, percent, seconds, short_time, times


def told(report: Report, say: Callable, *about, between: str = " ", gpu: bool = True) -> str:
    """Sentences by `say` on this machine, and on one on record; tables speak of all.

    Args:
        gpu: the one on record has a GPU if any has; False: none if any has none.
    """
    said = {machine: say(report, machine, *about) for machine in report.machines()}
    recorded = [words for machine, words in said.items() if machine != "here" and words]
    return between.join(filter(None, [said.get("here"), *(recorded[:1] if gpu else recorded[-1:])]))


def placed(machine: str) -> str:
    return "here" if machine == "here" else f"on *{machine}*"


def busy(report: Report) -> str:
    """A warning where measurements here had too little of the machine; empty where none had."""
    here = [run for run in report.loaded if run.origin == "here"]
    groups = [(one["had"], run, one["group"]) for run in here for one in run.provenance.get("busy", ())]
    if not groups:
        return ""
    had, run, group = min(groups, key=lambda found: found[0])
    where = f"{run.provenance['environment'] or 'the machine'}, {run.provenance['experiment']}, {group}"
    count = f"{len(groups):,} {'groups' if len(groups) > 1 else 'group'} of measurements"
    words = (
        f"<b>This machine was busy.</b> {count} had less than {ENOUGH:.0%} of the cores that they could use, at worst "
        f"{had:.0%} ({html.escape(where)}). They count for no number on this page; their rows are in the CSV files. "
        "<code>make report ARGS=--forceall</code> measures again."
    )
    return f'<p class="busy" role="alert">{words}</p>'


def measured(report: Report, machine: str) -> str:
    """One machine's result for the environment of the headline, in one sentence."""
    environment, batch = families.headline()["environment"], families.headline()["num_envs"]

    def step(quantity="rate", against=None, rung="port-cpu", **select):
        select |= {"environment": environment, "policy": "random", "rung": rung}
        return report.on(machine, quantity, against, **select)

    name = "Here" if machine == "here" else f"On record from *{machine}*"
    single = step("ratio", {"rung": "original", "num_envs": 1}, num_envs=batch)
    vector = step("ratio", {"rung": "gymnasium-vector"}, num_envs=batch)
    one, fused = step(num_envs=batch), step(rung="port-cpu-fused", num_envs=batch)
    parts = []
    if one != NOT_MEASURED:
        parts.append(
            f"the port of {envs.port(environment).title} on the CPU runs at {one} with {batch:,} environments and one "
            f"call per step, on {step('threads', num_envs=batch)} ({single} the original, {vector} Gymnasium's vector "
            "class)" + (f", and at {fused} fused" if fused != NOT_MEASURED else "")
        )
    ways = {"in a CUDA graph": step(rung="port-cuda-graph"), "fused": step(rung="port-cuda-fused")}
    on_gpu = [f"{rate} {way}" for way, rate in ways.items() if rate != NOT_MEASURED]
    if on_gpu:
        parts.append(f"the port on the GPU runs, at the best size, at {' and '.join(on_gpu)}")
    return f"{name} ({report.hardware(machine)}), {'; '.join(parts)}." if parts else ""


def brief(report: Report) -> str:
    """The main numbers, of this machine, or of those on record that have measured most environments."""
    sentences, ways = [], {"port-cpu": "", "port-cuda-graph": " on a GPU"}
    first = {rung: most(report, rung, ["here"]) or most(report, rung, report.machines()) for rung in ways}
    for machine in dict.fromkeys(filter(None, first.values())) or report.machines():
        parts, rungs = [], [rung for rung in ways if first[rung] == machine]
        item = {"quantity": "checks_held", "select": {"experiment": "correctness"}}
        checks = [finding for finding in quantities.find(report.datasets, item) if finding.machine == machine]
        if checks and not sentences:
            held, asked = (sum(getattr(finding, side) for finding in checks) for side in ("value", "high"))
            parts.append(f"{held:,.0f} of {asked:,.0f} comparisons hold")
        for rung in rungs:
            number, span = len(of_rung(report, machine, rung)), ratios(report, machine, rung)
            if rung != rungs[0] and number == len(of_rung(report, machine, rungs[0])):
                parts.append(f"{span}{ways[rung]}")
                continue
            first_of_all = not sentences and rung == rungs[0]
            ports = f"the ports of {number} environments" if first_of_all else f"those of {number}"
            parts.append(f"{ports} step {span} as fast{' as their originals' * first_of_all}{ways[rung]}")
        if parts:
            sentences.append(f"{placed(machine).capitalize()} ({report.hardware(machine)}), {listed(parts)}.")
    if not sentences:
        return "Nothing has been measured yet, neither here nor on record."
    return " ".join(sentences) + seconds_to_solve(report)


def most(report: Report, rung: str, machines: Collection[str]) -> str | None:
    """The machine among some that has measured a rung of most environments; None if none has of several."""
    numbers = {machine: len(of_rung(report, machine, rung)) for machine in machines}
    return max((machine for machine, number in numbers.items() if number > 1), key=numbers.get, default=None)


def listed(parts: list[str]) -> str:
    """Phrases with "and" before the last; none are an empty text."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def named(experiments: Collection[str]) -> str:
    return listed([f"`{one}`" for one in experiments])


def seconds_to_solve(report: Report) -> str:
    """A sentence on the time to solve the environment of the headline, on the first machine and device that did."""
    headline = families.headline()
    name, algorithm = headline["environment"], headline["training"]["algorithm"]
    asked = {"experiment": "learning", "environment": name, "algorithm": algorithm, "variant": "warm"}

    def within(agent: str, machine: str, device: str) -> str:
        found = report.on(machine, "nine_in_ten_solved", agent=agent, device=device, **asked)
        return "" if found in (NOT_MEASURED, short_time(float("inf"))) else found

    for place in itertools.product(report.machines(), ("cuda", "cpu")):
        if found := within("lockstep", *place):
            other = within("sb3", *place)
            over = f" (Stable-Baselines3: {other})" if other else ""
            learner = f"{learning.algorithm(algorithm)} solves {envs.port(name).title} in nine of ten seeds"
            where = "Here" if place[0] == "here" else f"On record (*{place[0]}*)"
            return f" {where}, with kernels compiled, {learner} within {found}{over}."
    return ""


WAYS = {"port-cpu": "with one call per step", "port-cpu-fused": "fused", "port-cuda-graph": "on a GPU in a CUDA graph"}


def spans(report: Report, machine: str, rungs: Collection[str] = tuple(WAYS)) -> list[str]:
    """The least and the greatest ratio to the original over several environments, for each way of stepping."""
    found = {rung: span for rung in rungs if (span := ratios(report, machine, rung))}
    return [
        f"{span}{'' if place else ' the rate of their originals'} {WAYS[rung]} "
        f"({len(of_rung(report, machine, rung))} environments)"
        for place, (rung, span) in enumerate(found.items())
    ]


def of_rung(report: Report, machine: str, rung: str) -> list[float]:
    """The ratios of a rung to the original, of every environment for which a machine has measured both."""
    rows = report.frame("family").query("machine == @machine")
    return rows[f"{rung}_ratio"].dropna().tolist() if len(rows) else []


def ratios(report: Report, machine: str, rung: str) -> str:
    """The least and the greatest ratio of a rung to the original over several environments; else nothing."""
    found = of_rung(report, machine, rung)
    return f"{times(min(found))} to {times(max(found))}" if len(found) > 1 else ""


def over_all(report: Report) -> str:
    """The ports' rates over those of the originals, in one sentence: on this machine, and as brief has it on record."""
    places = {}
    for rung in WAYS:
        for machines in (["here"], [machine for machine in report.machines() if machine != "here"]):
            if machine := most(report, rung, machines):
                places.setdefault(machine, []).append(rung)
    said = [f"{placed(machine)} at {listed(spans(report, machine, rungs))}" for machine, rungs in places.items()]
    return f"The ports run {'; '.join(said)}." if said else ""


def of_family(report: Report, machine: str, family: str) -> str:
    """One machine's result for the environment that stands for a family, in one sentence."""
    about = families.about(family)

    def on(quantity, against=None, **select):
        environment = about["headline"]["environment"]
        return report.on(machine, quantity, against, environment=environment, policy="random", **select)

    def steps(rung):
        return on("rate", rung=rung).replace("steps/s", f"{about.get('steps', 'steps')} per second")

    def over(other, rung):
        return on("ratio", {"rung": other, "num_envs": 1}, rung=rung)

    if steps("port-cpu") == NOT_MEASURED:
        return ""
    where = "Here" if machine == "here" else f"On record from *{machine}*"
    factors = f"{over('original', 'port-cpu')} the original"
    if "original-indexed" in about["headline"]["rungs"]:
        factors += f", {over('original-indexed', 'port-cpu')} the indexed one"
    port = f"the port of {envs.port(about['headline']['environment']).title} on the CPU"
    found = f"{where}, {port} runs at {steps('port-cpu')} on {on('threads', rung='port-cpu')} ({factors})"
    if steps("port-cuda-graph") != NOT_MEASURED:
        graph = "port-cuda-graph"
        found += f", and on the GPU at {steps(graph)} ({over('original', graph)}) in a CUDA graph"
    return f"{found}."


def trained(report: Report, machine: str) -> str:
    """Training's result on one machine, a sentence for each device."""
    headline = families.headline()
    environment, algorithm = headline["environment"], headline["training"]["algorithm"]

    def on(quantity, agent="lockstep", **select):
        select |= {"experiment": "learning", "environment": environment, "algorithm": algorithm}
        return report.on(machine, quantity, agent=agent, **select)

    def sentence(device, place):
        same = {"device": device, "recipe": headline["training"][device]}
        rate, ratio = on("training_rate", **same), on("training_ratio", "sb3", **same)
        solved = on("seeds_solved", variant="warm", device=device)
        slowest = on("nine_in_ten_solved", variant="warm", device=device)
        reached = slowest not in (NOT_MEASURED, short_time(float("inf")))
        parts = [
            f"training by the recipe {same['recipe']} runs at {rate}, all parts included"
            if rate != NOT_MEASURED
            else "",
            f"at least {ratio} the rate of Stable-Baselines3 at matched network, batch and epochs, in whatever setting"
            if ratio != NOT_MEASURED
            else "",
            f"by a recipe of small batches {envs.port(environment).title} is solved in {solved} seeds"
            f"{f', nine in ten within {slowest}' * reached}"
            if solved != NOT_MEASURED
            else "",
        ]
        found = listed(list(filter(None, parts)))
        return f"{place}, {found}." if found else ""

    where = "Here" if machine == "here" else f"On record from *{machine}*"
    places = {"cpu": f"{where}, on the CPU", "cuda": f"{where}, on the GPU"}
    return " ".join(filter(None, (sentence(device, place) for device, place in places.items())))


def differing_forms(report: Report, machine: str) -> dict[tuple[str, str], set[str]]:
    """By environment and library, the checks in which its batched form differs from the original.

    The port is left out, and so is the original's own library.
    """
    found = {}
    for run in runs_of(report, machine, "conformance"):
        wrong = conformance.differing(run.frame)
        for library in conformance.found(run.frame)["library"].unique():
            if library not in (conformance.OURS, crossing.CONTROL):
                names = set(wrong.loc[wrong["library"] == library, "property"])
                found[run.provenance["environment"], library] = names
    return found


def runs_of(report: Report, machine: str, experiment: str) -> list:
    runs = quantities.of(report.datasets, {"experiment": experiment})
    return [run for run in runs if paper.machine(run) == machine]


def same_forms(report: Report, machine: str) -> str:
    """The number of libraries' forms that differ from the original, and in what most often, in one sentence."""
    forms = differing_forms(report, machine)
    differs = [sorted(names) for names in forms.values() if names]
    if not forms:
        return ""
    libraries = len({library for _, library in forms})
    said = f"{placed(machine).capitalize()}, {len(differs)} of the {len(forms)} batched forms that {libraries} other "
    said += "libraries have of Gymnasium's tasks differ from the original in at least one check"
    if not differs:
        return f"{said}."
    often, number = Counter(itertools.chain.from_iterable(differs)).most_common(1)[0]
    return f"{said}, most often in *{often}* ({number} of them)."


def of_others(report: Report) -> str:
    """How many of the others' forms differ, as a clause of the abstract, on the first machine that knows."""
    known = filter(None, (differing_forms(report, machine) for machine in report.machines()))
    forms = next(known, None)
    return f", and {sum(map(bool, forms.values()))} of {len(forms)} by others fail one" if forms else ""


def learnt_there(report: Report, machine: str) -> str:
    """The number of libraries' forms on which training leads to another return in the original."""
    forms, apart, algorithms = differing_forms(report, machine), {True: [], False: []}, set()
    for run in runs_of(report, machine, "crossing"):
        for row in crossing.summary(run.frame).to_dict("records"):
            form = run.provenance["environment"], row["library"]
            if form in forms and not missing(row.get("difference_low")):
                apart[bool(forms[form])].append(row["difference_low"] > 0 or row["difference_high"] < 0)
                algorithms.add(learning.algorithm(row["algorithm"]))
    counts = {"that differ": apart[True], "that do not": apart[False]}
    parts = [f"{sum(found)} of the {len(found)} {words}" for words, found in counts.items() if found]
    if not parts:
        return ""
    trained = sum(map(len, apart.values()))
    return (
        f"{placed(machine).capitalize()}, {listed(sorted(algorithms))} was trained by one recipe on {trained} of these "
        "forms and on Gymnasium's own batch, and scored in the original. The 95 % interval of the difference over "
        f"seeds excludes zero with {listed(parts)}, where chance alone would have one in twenty do so. Where it "
        "holds zero, its width bounds what was lost, and a score that every form reaches in full shows nothing."
    )


def checks(report: Report) -> str:
    """The number of checks of sameness that hold on each machine, and of rows that only report something."""

    def said(quantity: str, write: Callable) -> str:
        item, found = {"quantity": quantity, "select": {"experiment": "correctness"}}, {}
        for finding in quantities.find(report.datasets, item):
            found.setdefault(placed(finding.machine), []).append(finding)
        return "; ".join(f"{write(findings)} {place}" for place, findings in found.items())

    held = said("checks_held", lambda found: f"{sum(f.value for f in found):,.0f} of {sum(f.high for f in found):,.0f}")
    reported = said("checks_told", lambda found: f"{sum(f.value for f in found):,.0f}")
    words = f"Comparisons that hold: {held}." if held else "No comparison has been made yet."
    if not reported:
        return words
    return f"{words} Rows of @table:correctness_checks that report a value without judging it: {reported}."


def verdicts(report: Report) -> str:
    """The number of main claims that hold, and those that do not."""
    verdict = report.frame("results")
    if verdict.empty:
        return "No claim can be judged yet."
    met = verdict["here_met"].where(verdict["here_met"].notna(), verdict["recorded_met"]).astype(bool)
    shown = verdict["here"].where(verdict["here"].notna(), verdict["recorded"])
    others = "; ".join(verdict["claim"][~met] + " (" + shown[~met] + ")")
    words = f"{met.sum()} of the {len(met)} main claims hold"
    return f"{words}; those that do not: {others}." if others else f"{words}."


def unmeasured(report: Report) -> str:
    """The number of targets that no machine has measured, and of them those that need a GPU; said here once."""
    left = report.frame("targets").query("status == @NOT_MEASURED")
    if left.empty:
        return ""
    on_gpu, targets = int(left["on_gpu"].sum()), f"{len(left)} target{'s' if len(left) > 1 else ''}"
    gpu = any(run.provenance["machine"].get("gpu") for run in report.datasets)
    share = "all" if on_gpu == len(left) else str(on_gpu)
    words = f"No machine has measured {targets} yet, {share} of them about a GPU."
    return words + ("" if gpu else " No machine with a GPU is on record: every rate in this paper is that of a CPU.")


def missed(report: Report) -> str:
    """The number of targets that each machine met, and a line for each that one of them did not."""
    judged = report.frame("targets").dropna(subset=["met"]).astype({"met": bool})
    judged = judged.assign(place=[placed(machine) for machine in judged["machine"]])
    reached = "; ".join(
        f"{rows['met'].sum()} of {len(rows)} {place}" for place, rows in judged.groupby("place", sort=False)
    )
    lines = [
        f"- {environment}: {target} ({'; '.join(rows['shown'] + ' ' + rows['place'])}; accepted: {accepted})"
        for (environment, target, accepted), rows in judged[~judged["met"]].groupby(
            ["environment", "target", "accepted"], sort=False
        )
    ]
    if not reached:
        return "No target can be judged yet."
    words = f"Of the targets in @table:targets that a machine has measured, it met {reached}"
    return "\n".join([f"{words}; missed were:\n", *lines] if lines else [f"{words}."])


def cost(report: Report) -> str:
    """The time and the disk that reproduction takes, as measured on each machine and as allowed."""
    sums, disk = report.frame("cost").query("experiment == 'all'"), families.aims()["budgets"]["disk"]
    sums = sums.sort_values("wall_s", ascending=False).drop_duplicates("machine").sort_index()  # the longest of each
    took = listed(
        [
            f"{seconds(row.wall_s)} {placed(row.machine)}"
            + (f" at {row.scale} scale" if row.scale else "")
            + (" (in part)" if row.in_part else "")
            for row in sums.dropna(subset=["wall_s"]).itertuples()
        ]
    )
    allowed = f"At quick scale {seconds(families.aims()['budgets']['quick'])} are allowed on a quiet machine"
    left, recorded = [one.name for one in catalogue.experiments().values() if not one.quick], report.recorded()
    words = f"{allowed}, and the packages take about {disk / 1e9:.0f} GB of disk without a GPU."
    words += f" A quick run leaves {named(left)} to `make report SCALE=full`"
    words += f"; of these {named(shown)} are on record." if (shown := [one for one in left if one in recorded]) else "."
    summed = "summed over experiments, some of which run side by side"
    return f"The measurements took {took}, {summed}. {words}" if took else words


ITERATION = (  # growth.Model, seconds
    "<p><i>T</i>(<i>n</i>) = <i>C</i> + 2 (<i>n</i> − 1) <i>m</i> (<i>α</i> + <i>λ</i>) + "
    "2 (<i>n</i> − 1) / <i>n</i> · <i>b</i> (1/<i>β</i> + 1/<i>w</i>)</p>"
)


def on_nodes(report: Report, machine: str) -> str:
    """Training in several processes and a recording on several nodes, as one machine's results give them."""
    rows = report.frame("nodes").query("machine == @machine")
    where = "Here" if machine == "here" else f"On record from *{machine}*"
    return " ".join(filter(None, (trained_on_nodes(rows, where), recorded_on_nodes(rows, where))))


def trained_on_nodes(rows: pd.DataFrame, where: str) -> str:
    """The most processes that had a core each, and the most nodes of the model through each link."""
    rows = rows[rows["work"] == "training"].dropna(subset=["speedup"])
    measured = rows[(rows["nodes"] > 1) & rows["crowded"].eq(False)]
    if measured.empty:
        return ""
    row = measured.loc[measured["nodes"].idxmax()]
    words = (
        f"{where}, {row['nodes']:.0f} processes train {envs.port(row['environment']).title} by "
        f"{learning.algorithm(row['algorithm'])} at {times(row['speedup'])} the rate of one, and "
        f"{percent(row['sum_s'] / row['wall_s'])} of an iteration goes by in sums"
    )
    modelled = rows[rows["wall_s"].isna()]
    most = modelled[modelled["nodes"] == modelled["nodes"].max()]
    through = listed([f"{times(one.speedup)} through links of {one.link}" for one in most.itertuples()])
    return words + (f"; by the model {most['nodes'].iloc[0]:.0f} nodes train at {through}." if through else ".")


def recorded_on_nodes(rows: pd.DataFrame, where: str) -> str:
    """The time of all jobs on one node and on the most, and what bounds it."""
    rows = rows[rows["work"] == "recording"]
    if rows.empty:
        return ""
    rows = rows[rows["scale"] == rows["scale"].iloc[0]].set_index("nodes")
    one, most = rows.loc[rows.index.min()], rows.loc[rows.index.max()]
    return (
        f"{where}, the {one['jobs']:.0f} jobs of a recording at {one['scale']} scale took {seconds(one['wall_s'])}; "
        f"{most.name:.0f} such nodes would take {seconds(most['wall_s'])}, and no number of them less than the longest "
        f"job, {most['longest']}, {seconds(most['longest_s'])}."
    )
