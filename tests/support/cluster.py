"""A Slurm cluster of one node, or of some, which the tests start and end, and the programs that they run on it.

munged, slurmctld and slurmd run as the user of the tests, listen on the loopback only, and use no file outside their
folder. A node's two GPUs are /dev/null and /dev/zero: Slurm allocates them, and nothing computes on them. Several nodes
are as many slurmd on this machine.
"""

import os
import pwd
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
from helpers import HANGS
from needs import PATH

START_SECONDS = 60
TASKS_MAX = 4  # tasks of an array: fewer than the students of a class of six

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0
GresTypes=gpu
KillWait=5
ReturnToService=2
MaxArraySize={tasks_max}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=nvidia Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """The daemons, as a context manager; `settings` are the variables with which srun and sbatch find them, `env` an
    environment that has them."""

    def __init__(self, folder: Path, nodes=0):
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self.nodes = [f"node{n}" for n in range(nodes)] or [self.host]
        self.settings = {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self.env = {**os.environ, **self.settings}
        self._daemons = ExitStack()

    def __enter__(self):
        for name in ("state", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        self._write()
        try:
            # --force: no other user needs its socket.
            self._start("munged", "--foreground", "--force", *self._munge())
            self._until(lambda: (self.folder / "munge.socket").exists(), "the start of munged")
            self._start("slurmctld", "-D")
            for node in self.nodes:
                self._start("slurmd", "-D", *(["-N", node] if node != self.host else []))
            self._until(lambda: self._idle_nodes() == len(self.nodes), "the start of slurmd")
        except BaseException:
            self._daemons.close()
            raise
        return self

    def __exit__(self, *_):
        with suppress(OSError, subprocess.SubprocessError):
            self.run("scancel", "--state=PENDING", "--user", pwd.getpwuid(os.getuid()).pw_name)
            self.run("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
            self._until(lambda: not self.run("squeue", "--noheader").stdout, "the end of the last job")
        self._daemons.close()

    def run(self, *command, **kwargs):
        """Run a command of Slurm."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, **kwargs)

    def _idle_nodes(self):
        return self.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split().count("idle")

    def wait_for(self, condition):
        """Wait until a condition is true that a command of Slurm or a job will cause."""
        self._until(condition, "what the test waits for")

    def _write(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)  # munged refuses a folder that others may write to
        values = {
            "host": self.host,
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "folder": self.folder,
            "ctld_port": free_port(),
            "nodes": "\n".join(
                f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={free_port()} "
                "CPUs=2 RealMemory=500 Gres=gpu:2 State=UNKNOWN"
                for node in self.nodes
            ),
            "tasks_max": TASKS_MAX,
        }
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
        gpus = ("/dev/null", "/dev/zero")
        gres = [f"NodeName={node} Name=gpu File={device}\n" for node in self.nodes for device in gpus]
        (self.folder / "gres.conf").write_text("".join(gres))

    def _munge(self):
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return [f"--{option}={self.folder}/munge.{end}" for option, end in files.items()]

    def _start(self, *command):
        log = self._daemons.enter_context((self.folder / f"{command[0]}.out").open("ab"))
        process = subprocess.Popen(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self._daemons.callback(self._end, process)

    @staticmethod
    def _end(process):
        process.terminate()
        try:
            process.wait(HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _until(self, condition, name):
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log")]
                logs += [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out")]
                raise TimeoutError(f"{name} did not happen within {START_SECONDS} s:\n" + "\n".join(logs))
            time.sleep(0.05)


def shell_program(path, body):
    """A shell script with this body, which gets INPUT and OUTPUT as arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_srun(folder, *lines, code=0):
    """The environment with a srun that starts nothing and says this."""
    path = folder / "bin" / "srun"
    shell_program(path, "\n".join([*(f"echo '{line}' >&2" for line in lines), f"exit {code}"]))
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


def answering_program(path, folder, first=":"):
    """A program that runs `first`, then copies the stored answer of its input."""
    body = f'{first}\nfor case in {folder}/*.out; do cmp -s "$1" "${{case%.out}}" && cp "$case" "$2"; done; true'
    return shell_program(path, body)


def processes_naming(text: str) -> list[psutil.Process]:
    """The processes with this text in their command lines."""
    return [one for one in psutil.process_iter(["cmdline"]) if text in " ".join(one.info["cmdline"] or ())]


def queue(cluster):
    """Slurm's jobs, a line each."""
    return cluster.run("squeue", "--noheader").stdout.split("\n")[:-1]
