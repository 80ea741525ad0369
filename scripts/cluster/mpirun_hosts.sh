#!/usr/bin/env bash
# Starts a trainer on several machines with Open MPI's mpirun, over ssh. No scheduler is needed.
#
#   scripts/cluster/mpirun_hosts.sh --hosts node1:2,node2:2 step4 --steps 100 --out runs/two_machines
#
#   --hosts HOST:RANKS,…   the machines, and how many ranks each one runs; localhost:2 tries it here
#   --dry-run              print the command and where each rank would run; start nothing
#   --help                 this text
#
# STEP is a step, or the path of a program. What follows it goes to the program as it is.
#
# `ssh HOST true` must work from here without a password, for every host. docs/cluster.md says what else
# each machine needs, and which variables choose one of several networks. This script builds nothing and
# copies nothing.
#
# What the command line says, and why:
#   --map-by slot      fill one host after the other
#   --bind-to none     leave threads to the kernel; a rank bound to one core would run all four of
#                      --threads 4 there
#   --wdir FOLDER      fail if a machine lacks the current folder; by default its ranks would start
#                      in the home folder
#   -x NAME            pass a variable on. mpirun itself passes OMPI_MCA_…; of your other variables,
#                      this script passes NCCL_… and OMP_NUM_THREADS
# There is no -q, unlike in ./ladder train: it would hide what mpirun says about machines.
#
# Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach all ranks as SIGUSR1: they save and stop, and this script ends
# with exit code 75. The same command with --resume auto continues. A second Ctrl-C kills.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")")
exec python3 "$ROOT/scripts/launcher/__main__.py" --mpirun-hosts "${BASH_SOURCE[0]}" "$@"
