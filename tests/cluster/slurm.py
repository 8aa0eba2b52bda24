"""A Slurm cluster on the loopback interface: a controller and two nodes, all of them this machine."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# By Debian's package.
PROGRAMS = {"munge": ("munged",), "slurm-wlm": ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")}
PLUGIN = "snakemake_executor_plugin_slurm"
CONFIGURATION = Path("/etc/slurm")  # where srun inside a job looks, which has lost SLURM_CONF
NODES = ("a", "b")
CPUS = 4  # of a node by its settings, whatever this machine has
JOB = "%i|%T|%h|%C|%m|%l|%k"
FIELDS = ("number", "state", "shares", "cpus", "memory", "time", "comment")

SETTINGS = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
MinJobAge=7200
KillWait=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
SlurmdParameters=config_overrides
NodeName=a NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=24000 Gres=gpu:1
NodeName=b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=24000 Gres=gpu:1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
GPU = "Name=gpu File=/dev/null\n"  # one that is counted and given to jobs, and computes nothing


def missing() -> str | None:
    """The reason why no cluster can be started here."""
    packages = [name for name, programs in PROGRAMS.items() if not all(map(shutil.which, programs))]
    if packages:
        return f"needs {' and '.join(packages)} (Debian: apt install {' '.join(packages)})"
    if importlib.util.find_spec(PLUGIN) is None:
        return f"needs {PLUGIN.replace('_', '-')}, which make test-cluster installs beside .venv"
    if os.geteuid() != 0:
        return "needs root, as whom Slurm's daemons run here"
    if subprocess.run(["pidof", "slurmctld", "slurmd"], capture_output=True).returncode == 0:
        return "another Slurm runs on this machine"
    return None


class NotStarted(Exception):
    """The cluster has not come up; says why."""


def until(condition: Callable[[], object], seconds: float, what: str):
    """The first answer of a condition that is true; fails after so many seconds."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
    return answer


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def configured(texts: dict[str, str]) -> Iterator[None]:
    """Files of /etc/slurm for as long as the block lasts; those that were there come back, after a kill next time."""
    with contextlib.ExitStack() as written:
        for name, text in texts.items():
            file, kept = CONFIGURATION / name, CONFIGURATION / f"{name}.before-the-test"
            try:
                if file.is_file() and not kept.exists():
                    file.rename(kept)
                written.callback(put_back, file, kept)
                file.write_text(text)
            except OSError as error:
                sentence = f"no Slurm comes up here, {error.filename} cannot be written: {error.strerror}"
                raise NotStarted(sentence) from error
        yield


def put_back(file: Path, kept: Path) -> None:
    """The file as it was before, or none."""
    if kept.exists():
        kept.replace(file)
    elif file.is_file():
        file.unlink()


class Cluster:
    """Daemons by name, each in the foreground: munged, slurmctld, and slurmd by the name of its node."""

    def __init__(self, folder: Path):
        self.folder, self.daemons = folder, {}
        folder.chmod(0o755)  # munged wants every user to reach its socket
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        files = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "seed-file": "munged.seed",
        }
        files["log-file"] = "munged.log"
        self.commands = {
            "munged": ["munged", "--foreground", *(f"--{option}={folder / name}" for option, name in files.items())],
            "slurmctld": ["slurmctld", "-D"],
            **{node: ["slurmd", "-D", "-N", node] for node in NODES},
        }

    @contextlib.contextmanager
    def running(self) -> Iterator["Cluster"]:
        """The cluster with both nodes idle; at the end its jobs are cancelled and its daemons end."""
        host = socket.gethostname().partition(".")[0]
        settings = SETTINGS.format(host=host, ports=free_ports(3), folder=self.folder, cpus=CPUS)
        with configured({"slurm.conf": settings, "gres.conf": GPU}):
            try:
                self.come_up()
                yield self
            finally:
                if "slurmctld" in self.daemons and subprocess.run(["scancel", "--me"]).returncode == 0:
                    until(lambda: not output("squeue", "--me", "--noheader"), 30, "no job is left")
                self.stop(*NODES, "slurmctld", "munged")

    def come_up(self) -> None:
        """Start all daemons; NotStarted, with the last word of each, where they do not come to work together."""
        try:
            self.start("munged")
            until((self.folder / "munge.socket").exists, 10, "munged's socket")
            self.start("slurmctld", *NODES)
            until(lambda: self.states() == {"idle"}, 30, "two idle nodes")
        except AssertionError as error:
            words = {name: (self.folder / f"{name}.said").read_text().splitlines()[-1:] for name in self.daemons}
            said = "; ".join(f"{name}: {' '.join(last) or 'nothing'}" for name, last in words.items())
            raise NotStarted(f"no Slurm comes up here, {error}; {said}") from error

    def start(self, *names: str) -> None:
        for name in names:
            with open(self.folder / f"{name}.said", "a") as said:
                self.daemons[name] = subprocess.Popen(
                    self.commands[name], stdout=said, stderr=said, start_new_session=True
                )

    def stop(self, *names: str, number: int = signal.SIGTERM) -> None:
        """End daemons by a signal; what they have started themselves goes on."""
        for name in names:
            if daemon := self.daemons.pop(name, None):
                daemon.send_signal(number)
                try:
                    daemon.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def states(self) -> set[str]:
        """The states of all nodes; none while the controller does not answer."""
        asked = subprocess.run(["sinfo", "--Node", "--noheader", "--format=%T"], capture_output=True, text=True)
        return set(asked.stdout.split())

    @contextlib.contextmanager
    def one_node(self) -> Iterator[None]:
        """The second node takes no jobs: both are the same cores, and two jobs would time each other."""
        output("scontrol", "update", "nodename=b", "state=drain", "reason=test")
        try:
            yield
        finally:
            output("scontrol", "update", "nodename=b", "state=resume")

    def jobs(self) -> list[dict[str, str]]:
        """What Slurm remembers of all jobs, the latest first."""
        lines = output("squeue", "--states=all", "--noheader", f"--format={JOB}").splitlines()
        rows = [dict(zip(FIELDS, line.split("|"), strict=True)) for line in lines]
        return sorted(rows, key=lambda job: -int(job["number"].partition("_")[0]))

    def outcome(self, number: str, seconds: float) -> set[str]:
        """The state of a job once it has ended, of an array those of its jobs."""

        def states() -> set[str]:
            found = {job["state"] for job in self.jobs() if job["number"].partition("_")[0] == number}
            return set() if found & {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"} else found

        return until(states, seconds, f"job {number} has ended")
