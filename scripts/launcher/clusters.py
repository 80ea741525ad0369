"""The scripts in scripts/cluster. Each is a lesson, and hands its words over: python3
scripts/launcher --NAME SCRIPT WORD…"""

import argparse
import itertools
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

from launcher.checkout import ROOT, chosen_kind
from launcher.console import Parser, count_from, fail, option_of, say, usage_error
from launcher.launch import launch_mpirun
from launcher.processes import become, output_of, start, wait
from launcher.steps import resolve_step, step_names, trainer_in

COUNT = count_from(1, 9999)


class Script(Parser):
    """The words of a script: its own options, a step or the path of a program, and what goes to
    that as it is."""

    def __init__(self, path):
        super().__init__(path, "", add_help=False)
        self.path, self.prog = path, f"scripts/cluster/{Path(path).name}"
        self.add_argument("--dry-run", action="store_true")
        self.add_argument("--help", "-h", action="store_true")
        self.add_argument("words", metavar="STEP [its options]", nargs=argparse.REMAINDER)

    def parse_args(self, words):
        arguments = super().parse_args(words)
        if arguments.help:  # the comment at the top
            lines = itertools.takewhile(
                lambda line: line.startswith("#"), Path(self.path).read_text().splitlines()[1:]
            )
            print(*(line[2:] for line in lines), sep="\n")
            raise SystemExit(0)
        if not arguments.words:
            self.error(f"which step? The steps: {' '.join(step_names())}")
        word, *arguments.options = arguments.words
        arguments.is_step = "/" not in word
        arguments.program = (
            str(trainer_in(chosen_kind().build, resolve_step(word)))
            if arguments.is_step
            else os.path.abspath(word)
        )
        return arguments


def need_program(path):
    if not os.access(path, os.X_OK):
        fail(
            f"there is no program {path} here: ./ladder setup builds the steps. Every machine needs it at this path"
        )


def show(commands, hosts, options):
    """Commands as a shell reads them back, in lines of up to 100 columns; and a row per rank. Hosts
    are filled in order, so the replicas of a pipeline's stage, which are neighbors, share a host.
    """
    for command in commands:
        lines = [""]
        for word in map(shlex.quote, map(str, command)):
            if lines[-1] and len(lines[-1]) + len(word) > 97:
                lines.append(" ")
            lines[-1] += f" {word}" if lines[-1] else word
        print(*lines, sep=" \\\n")
    is_cuda = option_of(options, "device") == "cuda" or option_of(options, "transport") == "nccl"
    places = [(host, local) for host, num_ranks in hosts for local in range(num_ranks)]
    print(f"{'rank':5} {'host':20} {'local rank':10} device")
    for rank, (host, local) in enumerate(places):
        print(f"{rank:<5} {host:20} {local:<10} {f'cuda:{local}' if is_cuda else 'cpu'}")
    return 0


def read_hosts(text):
    """[(host, number of ranks)] of HOST:RANKS,…"""
    hosts = []
    for spec in text.split(",") if text.strip(",") else [""]:
        if not re.fullmatch(r"[A-Za-z0-9._-]+:(0|[1-9][0-9]{0,3})", spec):
            raise argparse.ArgumentTypeError(
                f"has '{spec}', it must be HOST:RANKS, separated by commas: --hosts node1:2,node2:2"
            )
        host, num_ranks = spec.split(":")
        if num_ranks == "0":
            raise argparse.ArgumentTypeError(
                f"has '{spec}': no rank would run on {host}; leave it out"
            )
        if host in dict(hosts):
            raise argparse.ArgumentTypeError(f"has {host} twice; name it once, with all its ranks")
        hosts.append((host, int(num_ranks)))
    return hosts


def mpirun_hosts(words):
    script = Script(words[0])
    script.add_argument("--hosts", metavar="node1:2,node2:2", type=read_hosts)
    arguments = script.parse_args(words[1:])
    if not arguments.hosts:
        usage_error(
            "which machines? --hosts node1:2,node2:2 starts two ranks on each (--help says more)"
        )
    hosts = ",".join(f"{host}:{num_ranks}" for host, num_ranks in arguments.hosts)
    passed_on = [
        word
        for name in sorted(os.environ)
        if re.fullmatch("NCCL_.*|OMP_NUM_THREADS", name)
        for word in ("-x", name)
    ]
    command = [
        "mpirun",
        "--host",
        hosts,
        "-n",
        sum(dict(arguments.hosts).values()),
        "--map-by",
        "slot",
        "--bind-to",
        "none",
        "--wdir",
        os.environ.get("PWD", os.getcwd()),
        *passed_on,
        arguments.program,
        *arguments.options,
    ]
    if arguments.dry_run:
        return show([command], arguments.hosts, arguments.options)
    need_program(arguments.program)
    return launch_mpirun(
        command, "saved and stopped (exit code 75); the same command with --resume auto continues"
    ).code


def read_master(text):
    found = re.fullmatch(r"([A-Za-z0-9._-]+):([1-9][0-9]{0,4})", text)
    if not found or int(found[2]) > 65535:
        raise argparse.ArgumentTypeError(
            f"'{text}' must be HOST:PORT with a port from 1 to 65535: --master node1:29500"
        )
    return found[1], found[2]


def torchrun(words):
    script = Script(words[0])
    script.add_argument("--nodes", metavar="N", type=COUNT, default=1)
    script.add_argument("--node-rank", metavar="R", type=count_from(0, 9999), default=0)
    script.add_argument("--ranks-per-node", metavar="N", type=COUNT, default=1)
    script.add_argument(
        "--master", metavar="HOST:PORT", type=read_master, default=("localhost", "29500")
    )
    a = script.parse_args(words[1:])
    host, port = a.master
    if a.node_rank >= a.nodes:
        usage_error(
            f"--node-rank is {a.node_rank}, but --nodes {a.nodes} numbers the machines from 0 to {a.nodes - 1}"
        )
    if a.nodes > 1 and host == "localhost":
        usage_error(
            f"--master is '{host}:{port}', another machine on each of the {a.nodes}; name machine 0: --master node1:29500"
        )
    own = os.environ.get("LADDER_TORCHRUN") or chosen_kind().venv / "bin/torchrun"
    program = own if os.access(own, os.X_OK) else "torchrun"
    command = [
        program,
        "--nnodes",
        a.nodes,
        "--node-rank",
        a.node_rank,
        "--nproc-per-node",
        a.ranks_per_node,
        "--master-addr",
        host,
        "--master-port",
        port,
        "--signals-to-handle",
        "SIGINT,SIGTERM,SIGHUP,SIGUSR1",
        "--no-python",
        a.program,
        *a.options,
    ]
    if a.dry_run:
        machines = [host, *(f"machine {node}" for node in range(1, a.nodes))]
        return show([command], [(machine, a.ranks_per_node) for machine in machines], a.options)
    need_program(a.program)
    if not shutil.which(program):
        fail(
            "there is no torchrun here: ./ladder setup installs it in .ladder/venv (not with the CPU half of a CUDA build: "
            "./ladder doctor says which it is); LADDER_TORCHRUN=FILE names another"
        )
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # what torchrun would choose, with a warning; a trainer heeds --threads
    become(command)


def slurm(words):
    job = os.environ.get("SLURM_JOB_ID")
    if job and words[1:2] and re.match("--[nr]", words[1]):
        usage_error(
            f"{words[1]} comes too late, this is job {job}: give it to sbatch, as --nodes and --ntasks-per-node"
        )
    script = Script(words[0])
    script.add_argument("--nodes", metavar="N", type=COUNT, default=2)
    script.add_argument("--ranks-per-node", metavar="N", type=COUNT, default=2)
    a = script.parse_args(words[1:])
    submit = [
        "sbatch",
        "--nodes",
        a.nodes,
        "--ntasks-per-node",
        a.ranks_per_node,
        ROOT / "scripts/cluster/slurm.sbatch",
        *a.words,
    ]
    run = [
        "srun",
        f"--mpi={os.environ.get('SLURM_MPI_TYPE', 'pmix')}",
        "--distribution=block",
        "--cpu-bind=none",
        "--kill-on-bad-exit=0",
        "--wait=30",
        a.program,
        *a.options,
    ]
    if a.is_step:
        if option_of(a.options, "out") is None:
            usage_error(
                "a trainer needs --out FOLDER here: the job, back from the queue, looks there for its checkpoint"
            )
        run += [] if option_of(a.options, "resume") else ["--resume", "auto"]
    layout = [(f"machine {node}", a.ranks_per_node) for node in range(a.nodes)]
    if job:
        hosts = output_of(
            ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        ).split()
        layout = [(host, int(os.environ["SLURM_NTASKS_PER_NODE"])) for host in hosts]
    if job or a.dry_run:
        show([run] if job else [submit, run], layout, a.options)
    if a.dry_run:
        return 0
    need_program(a.program)
    if job:
        return run_job(run, job)
    if not shutil.which("sbatch"):
        fail(
            "there is no sbatch here: submit from a machine that has Slurm, or use mpirun_hosts.sh"
        )
    os.environ["LADDER_ROOT"] = str(ROOT)
    become(submit)


def run_job(command, job):
    """Passes signals on to srun. SIGUSR1 says that the job's time is nearly over."""
    srun, came = start(command), []
    code = wait(srun, lambda number: (came.append(number), srun.send_signal(number)))
    if code == 75 and signal.SIGUSR1 in came:
        say("saved and stopped; back to the queue")
        output_of(["scontrol", "requeue", job])
    return code


COMMANDS = {"--mpirun-hosts": mpirun_hosts, "--torchrun": torchrun, "--slurm": slurm}
