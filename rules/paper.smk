# One figure or table by itself, `snakemake results/figures/ladder.svg`, from what lies in results/. It measures nothing:
# rows are no input, which Snakemake would first make anew, but a parameter, so that new ones draw it again.

import hashlib

results_at_hand = lambda wildcards: {
    str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(Path("results").rglob("*.json"))
}


rule figure:
    """One figure, from what was measured here so far and what is on record."""
    input:
        recorded=RECORDED,
        sources=sources.of("lockstep.paper.report"),
        paper=PAPER,
        packages="requirements.lock",
    output:
        multiext("results/figures/{name}", ".svg", ".png"),
    log:
        "results/logs/figure/{name}.log",
    benchmark:
        "results/benchmarks/figure/{name}.tsv"
    conda:
        "../environment.yml"
    params:
        kind="figure",
        results=results_at_hand,
    shell:
        "python -m lockstep.paper.report --{params.kind} {wildcards.name} 2>&1 | tee {log}"


use rule figure as table with:
    """One table, from what was measured here so far and what is on record."""
    output:
        multiext("results/tables/{name}", ".csv", ".md"),
    log:
        "results/logs/table/{name}.log",
    benchmark:
        "results/benchmarks/table/{name}.tsv"
    params:
        kind="table",
        results=results_at_hand,
