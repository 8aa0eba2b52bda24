# Lockstep, from measurements to paper. `snakemake --cores all` makes results/report.html, `snakemake cartpole`
# one environment's experiments; `snakemake --list` names every rule. Scales: quick, or --config scale=full.

import functools
import os
import shutil
import sys
from pathlib import Path

from snakemake.logging import logger

from lockstep.experiments import SCALES, catalogue, cluster, left
from lockstep.experiments import config as settings
from lockstep.experiments.ledger import fingerprint, provenance, sources

# ---- Configuration and discovery ---------------------------------------------------------------------------

SCALE = config.get("scale", "quick")
if SCALE not in SCALES:
    raise WorkflowError(f"scale is {SCALE!r}; --config scale= takes one of: {', '.join(SCALES)}")
if unknown := sorted(set(config) - {"scale"}):
    raise WorkflowError(f"--config takes scale and nothing else, not: {', '.join(unknown)}")

# An environment is a folder with a kernel, and a YAML of the same name.
PORTS, SETTINGS = set(sources.environments(Path())), set(settings.files())
ENVIRONMENTS = sorted(PORTS & SETTINGS)
for name in sorted(PORTS ^ SETTINGS):
    logger.warning(f"{name} is left out: it needs both a folder of that name in envs/ and experiments/*/{name}.yaml")

# An experiment is a module with an EXPERIMENT; what is measured has its place under results/.
OF = {name: [f"{name}/{experiment}" for experiment in catalogue.experiments_of(name, SCALE)] for name in ENVIRONMENTS}
PLACES = [*catalogue.of_the_machine(), *(place for name in ENVIRONMENTS for place in OF[name])]
RECORDED = sorted(str(sums) for sums in Path("results/recorded").glob("*/SHA256SUMS"))  # of all files of a machine
PAPER = sorted(str(file) for file in Path("paper").rglob("*") if file.is_file() and file.suffix != ".pyc")
GPUS, CORES = 1 if shutil.which("nvidia-smi") else 0, workflow.resource_settings.cores
if CORES == 0:
    raise WorkflowError("--cores 0: experiments need at least one core; say --cores all")

# Timing takes every core, and a GPU that it uses; without one, the rest runs side by side: on an environment's share each.
# On a cluster timing has a node to itself, the rest two cores of one.
CLUSTER = workflow.remote_exec or CORES is None
SHARE = 2 if CLUSTER else max(1, CORES // max(1, len(ENVIRONMENTS)))
side_by_side = lambda wildcards: (CLUSTER or not GPUS) and not catalogue.timed(wildcards.place)
# Jobs take the Python that runs Snakemake, activated or not; with --sdm conda their environment goes first.
os.environ.update(PATH=os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()]))
# Snakemake asks several times for every job. A cluster may have GPUs where this machine has none.
fingerprint_of = functools.cache(functools.partial(fingerprint.of, gpu=CLUSTER or provenance.has_gpu()))
settings_of = lambda *asked: str([part(*asked, SCALE) for part in (fingerprint.section_of, fingerprint.settings_of)])
left.Left(logger, lambda: workflow.dag, SCALE, CORES)


onstart:
    cluster.outlast_earlier_jobs(logger.info, sends=CLUSTER)


wildcard_constraints:
    place="|".join(PLACES),


# ---- What to ask for ---------------------------------------------------------------------------------------


rule all:
    """The paper, and the results that its numbers come from."""
    input:
        "results/report.html",
        expand("results/{place}.csv", place=PLACES),


for name in ENVIRONMENTS:

    rule:
        """The experiments of one environment."""
        name:
            name
        input:
            expand("results/{place}.csv", place=OF[name]),


# ---- Experiments -------------------------------------------------------------------------------------------


rule experiment:
    """One experiment, again where what its code and settings mean has changed; what is timed takes every core."""
    input:
        packages="requirements.lock",
    output:
        rows="results/{place}.csv",
        provenance="results/{place}.json",
    log:
        "results/logs/{place}.log",
    benchmark:
        "results/benchmarks/{place}.tsv"
    conda:
        "environment.yml"
    threads: lambda wildcards: SHARE if side_by_side(wildcards) else CORES or 1
    resources:
        gpu=lambda wildcards: int(bool(CLUSTER or GPUS) and catalogue.on_gpu(wildcards.place)),
        cpus_per_task=lambda wildcards, threads: threads if side_by_side(wildcards) else -1,  # all of the node
        slurm_extra=lambda wildcards: "" if side_by_side(wildcards) else "--exclusive",
    params:
        asked=lambda wildcards: [word for word in catalogue.asked(wildcards.place) if word],
        scale=SCALE,
        code=lambda wildcards: fingerprint_of(*catalogue.asked(wildcards.place)),
        settings=lambda wildcards: settings_of(*catalogue.asked(wildcards.place)),
    message:
        "results/{wildcards.place}.csv"
    shell:
        "python -m lockstep.experiments.run {params.asked} --scale {params.scale} --cores {threads}"
        " --output {output.rows} 2>&1 | tee {log}"


# ---- Paper -------------------------------------------------------------------------------------------------


rule report:
    """Tables, figures and prose, from what was measured here and what is on record."""
    input:
        rows=expand("results/{place}.csv", place=PLACES),
        provenance=expand("results/{place}.json", place=PLACES),
        recorded=RECORDED,
        sources=sources.of("lockstep.paper.build"),
        paper=PAPER,
        packages="requirements.lock",
    output:
        page=report("results/report.html", category="Paper"),
        supplement=report("results/supplement.html", category="Paper"),
        tables=report(directory("results/tables"), patterns=["{table}.csv"], category="Tables"),
        figures=report(directory("results/figures"), patterns=["{figure}.svg"], category="Figures"),
    log:
        "results/logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "environment.yml"
    message:
        "results/report.html"
    shell:
        "python -m lockstep.paper.build --output {output.page} 2>&1 | tee {log}"


include: "rules/paper.smk"
