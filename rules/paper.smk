# One figure or table by itself, `snakemake results/figures/ladder.svg`, from what lies in results/. It measures nothing:
# rows are no input, which Snakemake would first make anew, but a parameter, so that new ones draw it again.

import hashlib


def at_hand(wildcards):
    """Checksums of the provenance of all that was measured here."""
    found = [file for pattern in ("*.json", "*/*.json") for file in sorted(Path("results").glob(pattern))]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


rule figure:
    """One figure, from what was measured here so far and what is on record."""
    input:
        recorded=RECORDED,
        sources=sources.of("lockstep.paper.report"),
        paper=PAPER,
        packages="environment.yml",
    output:
        multiext("results/figures/{name}", ".svg", ".png"),
    log:
        "results/logs/figure/{name}.log",
    benchmark:
        "results/benchmarks/figure/{name}.tsv"
    conda:
        "../environment.yml"
    params:
        results=at_hand,
    shell:
        "python -m lockstep.paper.report --{rule} {wildcards.name} 2>&1 | tee {log}"


use rule figure as table with:
    """One table, from what was measured here so far and what is on record."""
    output:
        multiext("results/tables/{name}", ".csv", ".md"),
    log:
        "results/logs/table/{name}.log",
    benchmark:
        "results/benchmarks/table/{name}.tsv"
