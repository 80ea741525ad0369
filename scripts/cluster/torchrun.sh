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
# variables need no option, because each machine has a shell of its own: NCCL_SOCKET_IFNAME=eth0 and
# GLOO_SOCKET_IFNAME=eth0 choose the network for NCCL and gloo, NCCL_DEBUG=INFO has NCCL say what it
# chose.
#
# Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach this machine's ranks, which have 30 seconds to save. torchrun then
# ends with exit code 1, whatever code its ranks had, so 75 (saved and stopped) is lost: look for
# "was_stopped": true in report.json.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")")
# shellcheck source=scripts/cluster/common.sh
source "$ROOT/scripts/cluster/common.sh"

main() {
  local nodes=1 node_rank=0 ranks_per_node=1 master=localhost:29500 is_dry_run=0 torchrun node layout=() command
  while (($# > 0)); do
    case $1 in
      --nodes) need_value "$1" "${2:-}" 2; nodes=$2; shift ;;
      --node-rank) need_value "$1" "${2:-}" 0; node_rank=$2; shift ;;
      --ranks-per-node) need_value "$1" "${2:-}" 2; ranks_per_node=$2; shift ;;
      --master) need_value "$1" "${2:-}" node1:29500; master=$2; shift ;;
      --dry-run) is_dry_run=1 ;;
      --help | -h) show_help "${BASH_SOURCE[0]}"; return ;;
      -*) unknown_option "$1" --nodes --node-rank --ranks-per-node --master --dry-run --help ;;
      *) break ;;
    esac
    shift
  done
  need_count --nodes "$nodes" 1
  need_count --node-rank "$node_rank" 0
  need_count --ranks-per-node "$ranks_per_node" 1
  ((node_rank < nodes)) ||
    usage_error "--node-rank is $node_rank, but --nodes $nodes numbers the machines from 0 to $((nodes - 1))"
  if [[ ! $master =~ ^[A-Za-z0-9._-]+:[1-9][0-9]{0,4}$ ]] || ((${master##*:} > 65535)); then
    usage_error "--master is '$master', it must be HOST:PORT with a port from 1 to 65535: --master node1:29500"
  fi
  ((nodes == 1)) || [[ ${master%:*} != localhost ]] ||
    usage_error "--master is '$master', another machine on each of the $nodes; name machine 0: --master node1:29500"
  take_program "$@"

  torchrun=${LADDER_TORCHRUN:-$(launcher --venv)/bin/torchrun}
  if [[ ! -x $torchrun ]]; then torchrun=torchrun; fi
  command=("$torchrun" --nnodes "$nodes" --node-rank "$node_rank" --nproc-per-node "$ranks_per_node"
    --master-addr "${master%:*}" --master-port "${master##*:}" --signals-to-handle "SIGINT,SIGTERM,SIGHUP,SIGUSR1"
    --no-python "$PROGRAM" "${OPTIONS[@]}")
  if ((is_dry_run)); then
    layout=("${master%:*}:$ranks_per_node")
    for ((node = 1; node < nodes; node++)); do layout+=("machine $node:$ranks_per_node"); done
    show_command "${command[@]}"
    show_layout "${layout[@]}"
    return
  fi
  need_program
  command -v "$torchrun" >/dev/null || fail "there is no torchrun here: ./ladder setup installs it in .ladder/venv" \
    "(not with the CPU half of a CUDA build: ./ladder doctor says which it is); LADDER_TORCHRUN=FILE names another"
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # what torchrun would choose, with a warning; a trainer heeds --threads
  exec "${command[@]}"
}
main "$@"
