#!/usr/bin/env bash
# Trains a step, or starts any program, with torchrun, PyTorch's launcher. It starts ranks without MPI;
# their messages go through the store that torchrun serves on machine 0, or through NCCL between GPUs.
#
# Run it on every machine, with another --node-rank on each:
#
#   scripts/cluster/torchrun.sh --nodes 2 --node-rank 0 --ranks-per-node 2 --master node1:29500 step4 --steps 10
#   scripts/cluster/torchrun.sh --nodes 2 --node-rank 1 --ranks-per-node 2 --master node1:29500 step4 --steps 10
#
#   --nodes N              the number of machines (default 1)
#   --node-rank R          which one this is, from 0 (default 0)
#   --ranks-per-node N     how many ranks each machine runs; on GPUs, one per GPU (default 1)
#   --master HOST:PORT     machine 0 by a name that all others can reach, and a free port there
#                          (default localhost:29500)
#   --dry-run              print the command and where each rank would run; start nothing
#   --help                 this text
#
# LADDER_TORCHRUN=FILE names a torchrun other than the one in .ladder/venv.
#
# PROGRAM is the path of a program (with a slash), or a step. What follows it goes to the program as
# it is. It, the current folder and the data have the same path on every machine.
#
# Ranks find in their environment: RANK and WORLD_SIZE; LOCAL_RANK, which picks the GPU; MASTER_ADDR
# and MASTER_PORT, where they meet; and TORCHELASTIC_RUN_ID, which says that it was torchrun. Other
# variables (docs/cluster.md; for gloo, GLOO_SOCKET_IFNAME) need no option, because each machine has a
# shell of its own.
#
# Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach this machine's ranks, which have 30 seconds to save. torchrun then
# ends with exit code 1, whatever code its ranks had, so 75 (saved and stopped) is lost: look for
# "was_stopped": true in report.json.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")")
exec python3 "$ROOT/scripts/launcher/__main__.py" --torchrun "${BASH_SOURCE[0]}" "$@"
