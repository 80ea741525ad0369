# shellcheck shell=bash
# Starts trainers and benchmarks: one process, or several under mpirun. Sourced by ./ladder.

# supervise COMMAND…: runs it in a session of its own, so that Ctrl-C reaches only us. INT, TERM and HUP become SIGUSR1:
# save and stop, exit code 75. A second INT sends kill_signal. STOPPING and STOPPED are the messages to the user.
STOPPING="saving and stopping"
STOPPED="saved and stopped (exit code 75); ./ladder train with --resume auto and the same --out continues"
EXPLAINS_ITSELF=0  # 1: the command says why it failed
interrupts=0 is_stopping=0
supervise() {
  local status is_interrupted comes_early=0
  child=""
  trap 'interrupts=$((interrupts + 1)); stop_child' INT
  trap stop_child TERM HUP USR1
  setsid "$@" </dev/null &
  child=$!
  if ((comes_early)); then stop_child; fi
  while :; do
    is_interrupted=0
    status=0
    wait "$child" 2>/dev/null || status=$?
    if ((is_interrupted == 0)); then break; fi
  done
  trap 'exit 130' INT  # not "trap - INT": if INT is ignored, as after a "&", bash would ignore it again
  trap - TERM HUP USR1
  if ((interrupts > 1 || interrupts == 1 && status > 128)); then status=130; fi
  if ((status == 75)); then say "$STOPPED"; fi
  if ((status > 128 && interrupts == 0 && ! EXPLAINS_ITSELF)); then
    say "a process was killed by signal $((status - 128)) ($(kill -l $((status - 128))))"
  fi
  return "$status"
}
# Uses variables of supervise. A signal may come before there is a child.
stop_child() {
  is_interrupted=1 is_stopping=1
  if [[ -z $child ]]; then
    comes_early=1
  elif ((interrupts > 1)); then
    kill "-$kill_signal" "$child" 2>/dev/null || true
  else
    if ((interrupts == 1)); then say "$STOPPING; Ctrl-C again kills"; fi
    await_session "$child"
    kill -USR1 "$child" 2>/dev/null || true
  fi
}
# For whoever would go on: what was asked to stop may have been at its end, and has ended well.
exit_if_stopping() { ((is_stopping == 0)) || exit 130; }

# launch RANKS PROGRAM OPTION…
launch() {
  local ranks=$1
  shift
  kill_signal=KILL
  if ((ranks == 1)); then
    supervise "$@"
  else
    launch_mpirun mpirun -q -n "$ranks" --oversubscribe --bind-to none "$@"
  fi
}

# launch_mpirun COMMAND…: a command line of mpirun.
launch_mpirun() {
  kill_signal=TERM  # mpirun ends its ranks with itself
  if [[ ! -t 1 ]]; then export TERM=dumb; fi  # no progress line: ranks cannot see where mpirun sends their output
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  supervise "$@"
}

# launch_script COMMAND…: a benchmark that starts processes itself and ends them with itself (benchmarks/processes.py).
launch_script() {
  kill_signal=TERM
  STOPPING="stopping"
  supervise "$@"
}

# Takes --ranks N out of the options: sets OPTIONS to the rest, and RANKS if it was given.
split_ranks() {
  OPTIONS=()
  while (($# > 0)); do
    case $1 in
      --ranks)
        (($# > 1)) || usage_error "--ranks needs a number of processes: --ranks 2"
        RANKS=$2
        shift
        ;;
      --ranks=*) RANKS=${1#*=} ;;
      *) OPTIONS+=("$1") ;;
    esac
    shift
  done
  [[ $RANKS =~ ^[1-9][0-9]{0,3}$ ]] || usage_error "--ranks is '$RANKS', it must be a number from 1 to 9999"
}
