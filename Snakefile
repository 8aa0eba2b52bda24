# Lockstep, from measurements to paper. `snakemake --cores all` makes results/report.html, `snakemake cartpole`
# one environment's experiments; `snakemake --list` names every rule. Scales: quick, or --config scale=full.

import os
import shutil
import sys
from pathlib import Path

from snakemake.logging import logger

from lockstep.experiments import SCALES, record, sources

# ---- Configuration and discovery ---------------------------------------------------------------------------

SCALE = config.get("scale", "quick")
if SCALE not in SCALES:
    raise WorkflowError(f"scale is {SCALE!r}; --config scale= takes one of: {', '.join(SCALES)}")
if unknown := sorted(set(config) - {"scale"}):
    raise WorkflowError(f"--config takes scale and nothing else, not: {', '.join(unknown)}")

# An environment is a folder with a kernel, and a YAML of the same name.
PORTS = set(sources.environments(Path()))
SETTINGS = {settings.stem for settings in Path("experiments").glob("*.yaml")} - {"schema"}
ENVIRONMENTS = sorted(PORTS & SETTINGS)
for name in sorted(PORTS ^ SETTINGS):
    logger.warning(f"{name} is left out: it needs both a folder of that name in envs/ and experiments/{name}.yaml")

RESULTS = {
    name: [f"results/{name}/{experiment}.csv" for experiment in record.experiments_of(name)] for name in ENVIRONMENTS
}
MEASURED = ["results/ceilings.csv", *(rows for name in ENVIRONMENTS for rows in RESULTS[name])]
RECORDED = sorted(str(sums) for sums in Path("results/recorded").glob("*/SHA256SUMS"))  # of all files of a machine
PAPER = sorted(str(file) for file in Path("paper").rglob("*") if file.is_file() and file.suffix != ".pyc")
GPUS = 1 if shutil.which("nvidia-smi") else 0

# Jobs take the Python that runs Snakemake, activated or not; with --sdm conda their environment goes first.
os.environ.update(PATH=os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()]))


wildcard_constraints:
    environment="|".join(ENVIRONMENTS),


# ---- What to ask for ---------------------------------------------------------------------------------------


rule all:
    """The paper, and the results that its numbers come from."""
    input:
        "results/report.html",
        MEASURED,


for name in ENVIRONMENTS:

    rule:
        """The experiments of one environment."""
        name:
            name
        input:
            RESULTS[name],


# ---- Experiments -------------------------------------------------------------------------------------------
# What is timed takes every core, so nothing else runs beside it. The rules of an environment differ from the first in
# their names alone, which the wildcard `experiment` stands for.


rule throughput:
    """Steps per second of an environment: every rung of the ladder, every batch size."""
    input:
        sources=lambda wildcards: sources.of(f"lockstep.experiments.{wildcards.experiment}", wildcards.environment),
        packages="environment.yml",
    output:
        rows="results/{environment}/{experiment,throughput}.csv",
        provenance="results/{environment}/{experiment,throughput}.json",
    log:
        "results/logs/{environment}/{experiment}.log",
    benchmark:
        "results/benchmarks/{environment}/{experiment}.tsv"
    conda:
        "environment.yml"
    threads: workflow.cores
    resources:
        gpu=GPUS,
    params:
        scale=SCALE,
    shell:
        "python -m lockstep.experiments.{wildcards.experiment} {wildcards.environment} --scale {params.scale}"
        " --output {output.rows} 2>&1 | tee {log}"


use rule throughput as correctness with:
    """Original against port: one step, whole episodes, distributions."""
    output:
        rows="results/{environment}/{experiment,correctness}.csv",
        provenance="results/{environment}/{experiment,correctness}.json",


use rule throughput as transfer with:
    """What copies between host and device cost a loop; where the environment's YAML asks for it."""
    output:
        rows="results/{environment}/{experiment,transfer}.csv",
        provenance="results/{environment}/{experiment,transfer}.json",


use rule throughput as scaling with:
    """Steps per second and memory over the number of vehicles; where the YAML asks for it."""
    output:
        rows="results/{environment}/{experiment,scaling}.csv",
        provenance="results/{environment}/{experiment,scaling}.json",


use rule throughput as breakdown with:
    """What each operation of a step costs, in every form; where the YAML asks for it."""
    output:
        rows="results/{environment}/{experiment,breakdown}.csv",
        provenance="results/{environment}/{experiment,breakdown}.json",


use rule throughput as offloading with:
    """What policies reach: delays, deadlines, costs; where the YAML asks for it."""
    output:
        rows="results/{environment}/{experiment,offloading}.csv",
        provenance="results/{environment}/{experiment,offloading}.json",


use rule throughput as learning with:
    """Agents that learn: curves, time to solve, rates; of environments with a recipe."""
    output:
        rows="results/{environment}/{experiment,learning}.csv",
        provenance="results/{environment}/{experiment,learning}.json",


use rule throughput as peers with:
    """Other libraries beside the port, of those that `make peers` has installed."""
    output:
        rows="results/{environment}/{experiment,peers}.csv",
        provenance="results/{environment}/{experiment,peers}.json",


use rule throughput as compilation with:
    """Registers and spills of an environment's GPU kernels; needs no GPU."""
    output:
        rows="results/{environment}/{experiment,compilation}.csv",
        provenance="results/{environment}/{experiment,compilation}.json",
    threads: 1
    resources:
        gpu=0,


rule ceilings:
    """What this machine can do at most: copy bandwidth, fp32 rate, cost of a launch."""
    input:
        sources=sources.of("lockstep.experiments.ceilings"),
        packages="environment.yml",
    output:
        rows="results/ceilings.csv",
        provenance="results/ceilings.json",
    log:
        "results/logs/ceilings.log",
    benchmark:
        "results/benchmarks/ceilings.tsv"
    conda:
        "environment.yml"
    threads: workflow.cores
    resources:
        gpu=GPUS,
    params:
        scale=SCALE,
    shell:
        "python -m lockstep.experiments.ceilings --scale {params.scale} --output {output.rows} 2>&1 | tee {log}"


# ---- Paper -------------------------------------------------------------------------------------------------


rule report:
    """Tables, figures and prose, from what was measured here and what is on record."""
    input:
        rows=MEASURED,
        provenance=[rows.replace(".csv", ".json") for rows in MEASURED],
        recorded=RECORDED,
        sources=sources.of("lockstep.paper.build"),
        paper=PAPER,
        packages="environment.yml",
    output:
        page="results/report.html",
        tables=directory("results/tables"),
        figures=directory("results/figures"),
    log:
        "results/logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "environment.yml"
    shell:
        "python -m lockstep.paper.build --output {output.page} 2>&1 | tee {log}"


include: "rules/paper.smk"
