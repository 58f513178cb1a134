"""A whole Slurm of one node with two GPUs (so it says), in a folder of its own: started for the tests, gone with them.

munged, slurmctld and slurmd run as whoever runs the tests, listen on the loopback alone, and read and write nothing
outside the folder. What Slurm calls GPUs are /dev/null and /dev/zero: it gives them out, nobody computes on them.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "scontrol")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
START_SECONDS = 60
TASKS_MAX = 4  # of an array: few, so that a class of six has more students than tasks

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
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
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=500 Gres=gpu:2 State=UNKNOWN
PartitionName=nvidia Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """The programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=PATH)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """The daemons, as a context manager; `settings` is what srun and sbatch need to find them, `env` a whole
    environment with it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self.settings = {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self.env = {**os.environ, **self.settings}
        self._daemons = ExitStack()

    def __enter__(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self._write()
        try:
            # By force: others need not reach its socket.
            self._start("munged", "--foreground", "--force", *self._munge())
            self._until(lambda: (self.folder / "munge.socket").exists(), "munged")
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D")
            self._until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T").stdout, "slurmd")
        except BaseException:
            self._daemons.close()
            raise
        return self

    def __exit__(self, *_):
        with suppress(OSError, subprocess.SubprocessError):
            self.run("scancel", "--state=PENDING", "--user", pwd.getpwuid(os.getuid()).pw_name)
            self.run("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
            self._until(lambda: not self.run("squeue", "--noheader").stdout, "the last job")
        self._daemons.close()

    def run(self, *words, **kwargs):
        """Run a command of Slurm."""
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60, **kwargs)

    def wait_for(self, happens):
        """Wait until something happens that a command of Slurm's, or a job, brings about."""
        self._until(happens, "what the test waits for")

    def _write(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)  # munged wants nobody else to be able to write there
        facts = {
            "host": self.host,
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "folder": self.folder,
            "ctld_port": free_port(),
            "slurmd_port": free_port(),
            "tasks_max": TASKS_MAX,
        }
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**facts))
        gres = [f"NodeName={self.host} Name=gpu File={device}\n" for device in ("/dev/null", "/dev/zero")]
        (self.folder / "gres.conf").write_text("".join(gres))

    def _munge(self):
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return [f"--{option}={self.folder}/munge.{end}" for option, end in files.items()]

    def _start(self, *words):
        log = self._daemons.enter_context((self.folder / f"{words[0]}.out").open("wb"))
        process = subprocess.Popen(
            words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self._daemons.callback(self._end, process)

    @staticmethod
    def _end(process):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _until(self, happens, who):
        deadline = time.monotonic() + START_SECONDS
        while not happens():
            if time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log")]
                logs += [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out")]
                raise TimeoutError(f"{who} does not come up:\n" + "\n".join(logs))
            time.sleep(0.05)
