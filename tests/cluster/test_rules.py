"""One environment's experiments, sent to a cluster and measured here: the same rows, verdicts and machine."""

import json

import pandas as pd
import yaml

from lockstep.experiments.ledger import provenance
from tests.cluster import slurm
from tests.pipeline.copies import ROOT, copy_of_the_code, experiments, snakemake

ENVIRONMENT = "mountain_car"
# MB and minutes of a first attempt.
ASKED = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())["set-resources"]["experiment"]
MEMORY, MINUTES = (int(ASKED[resource].removesuffix(" * attempt")) for resource in ("mem_mb", "runtime"))
FIRST_ATTEMPT = (f"{MEMORY}M", f"{MINUTES // 60}:{MINUTES % 60:02}:00")
# Columns that differ from one run to the next; all others are equal, scores and errors included.
OF_A_RUN = {"steps", "wall_s", "cpu_s", "first_call_s", "memory_mib", "rollout_s", "advantage_s", "update_s"}
# What provenance says of code, settings and machine.
OF_THE_SAME = (
    *("experiment", "environment", "scale", "fingerprint", "settings", "conditions", "machine", "section", "config"),
    *("sources", "packages", "lock", "seed", "timing"),
)


def test_an_environment_on_the_cluster_has_the_rows_and_verdicts_of_this_machine(cluster, copy, send, tmp_path_factory):
    earlier = {job["number"] for job in cluster.jobs()}
    with cluster.one_node():
        assert send(ENVIRONMENT).wait(timeout=400) == 0, (copy / "said.txt").read_text()
    jobs = [job for job in cluster.jobs() if job["number"] not in earlier]
    sent = {job["comment"].removeprefix(f"rule_experiment_wildcards_{ENVIRONMENT}_"): job for job in jobs}
    assert len(jobs) == len(sent) and sent.keys() == {*experiments(copy, ENVIRONMENT)}
    here = copy_of_the_code(tmp_path_factory.mktemp("here"))
    snakemake(here, "--cores", "all", ENVIRONMENT, timeout=400)

    for name in experiments(copy, ENVIRONMENT):
        there, ours = (folder / "results" / ENVIRONMENT / f"{name}.csv" for folder in (copy, here))
        rows, expected = pd.read_csv(there), pd.read_csv(ours)
        assert list(rows.columns) == list(expected.columns)
        compared = [column for column in rows.columns if column not in OF_A_RUN]
        pd.testing.assert_frame_equal(rows[compared], expected[compared])

        described, expectation = (json.loads(file.with_suffix(".json").read_text()) for file in (there, ours))
        assert {word: described[word] for word in OF_THE_SAME} == {word: expectation[word] for word in OF_THE_SAME}
        assert described["machine"] == json.loads(json.dumps(provenance.machine()))
        assert described.get("passed") == expectation.get("passed")
        assert (described.get("passed") is True) == (name == "correctness")

        job = sent[name]
        assert (job["state"], job["memory"], job["time"]) == ("COMPLETED", *FIRST_ATTEMPT)
        # What is timed has a node to itself.
        assert (job["shares"], int(job["cpus"])) == (("OK", 2) if name == "correctness" else ("NO", slurm.CPUS))
        assert "TresPerJob=gres:gpu:1" in slurm.output("scontrol", "show", "job", job["number"])
        benchmark = pd.read_csv(copy / "results" / "benchmarks" / ENVIRONMENT / f"{name}.tsv", sep="\t")
        assert benchmark["max_rss"].item() < MEMORY and benchmark["s"].item() < MINUTES * 60
