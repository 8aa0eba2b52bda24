"""About how long a run of Snakemake still takes: a line after each finished job."""

import json
import logging
import statistics
from collections.abc import Callable
from pathlib import Path

from snakemake.logging import LogEvent, get_event


class Left(logging.Handler):
    """Logs the time left: a job takes what it took before at this scale, here or on a recorded machine.

    One that was never measured takes the mean of the others. As long as nothing was measured, nothing is said.

    Args:
        logger: of Snakemake; the handler adds itself.
        dag: the jobs, once they are known.
        cores: that jobs share; None, on a cluster, where nothing is said either.
    """

    def __init__(self, logger: logging.Logger, dag: Callable[[], object], scale: str, cores: int | None):
        super().__init__()
        self.logger, self.dag, self.scale, self.cores = logger, dag, scale, cores
        self.took: dict[str, float] = {}  # s, by place under results/
        for folder in (*sorted(Path("results/recorded").glob("*")), Path("results")):
            self.read(folder)
        if cores is not None:
            logger.addHandler(self)

    def read(self, folder: Path) -> None:
        for file in (*folder.glob("*.json"), *folder.glob("*/*.json")):
            try:
                described = json.loads(file.read_text())
                if described["scale"] in (self.scale, None):
                    self.took[file.relative_to(folder).with_suffix("").as_posix()] = float(described["wall_s"])
            except (OSError, ValueError, KeyError, TypeError):  # no result, or being written
                continue

    def emit(self, record: logging.LogRecord) -> None:
        if get_event(record) is not LogEvent.PROGRESS or record.done == record.total:
            return
        self.read(Path("results"))
        seconds = self.seconds()
        if seconds is not None:
            self.logger.info(f"about {max(1, round(seconds / 60))} min left")

    def seconds(self) -> float | None:
        """Of the jobs that have not finished, on the cores that each takes; None where no time is known."""
        if not self.took:
            return None
        usual = statistics.mean(self.took.values())
        jobs = [job for job in self.dag().needrun_jobs() if job.shellcmd]
        places = (job.wildcards.get("place") for job in jobs)
        return sum(
            self.took.get(place, usual) * min(job.threads / self.cores, 1)
            for place, job in zip(places, jobs, strict=True)
        )
