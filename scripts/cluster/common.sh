# shellcheck shell=bash
# What the scripts share: words of the command line, the layout of the ranks, how a command is shown. Sourced by them;
# they set ROOT.
say() { printf 'ladder: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
usage_error() { say "$*"; exit 2; }

# Asks the program behind ./ladder (scripts/launcher/for_clusters.py), which knows the steps and the builds.
launcher() { python3 "$ROOT/scripts/launcher" "$@"; }

# Prints the comment at the top of a script, up to its first line without one.
show_help() { sed -n '2,/^[^#]\|^$/s/^# \{0,1\}//p' "$1"; }

# need_value OPTION VALUE EXAMPLE: an option is the last word only by mistake.
need_value() { [[ -n ${2:-} ]] || usage_error "$1 needs a value, for example $1 $3"; }

# need_count OPTION VALUE LEAST
need_count() {
  if [[ ! $2 =~ ^(0|[1-9][0-9]{0,3})$ ]] || (($2 < $3)); then
    usage_error "$1 is '$2', it must be a number from $3 to 9999"
  fi
}

# unknown_option WORD KNOWN…
unknown_option() {
  local word=$1
  shift
  usage_error "unknown option $word$(launcher --nearest "$word" "$@") The options: $*. A trainer's own options follow its STEP"
}

# take_program WORD…: sets PROGRAM to the trainer of a step, or to any program if the word has a slash, and OPTIONS to
# the words that follow.
take_program() {
  if [[ ${1:-} == */* ]]; then
    PROGRAM=$(realpath -ms "$1")
  else
    PROGRAM=$(launcher --program "${1:-}")
  fi
  OPTIONS=("${@:2}")
}
need_program() {
  [[ -x $PROGRAM ]] ||
    fail "there is no program $PROGRAM here: ./ladder setup builds the steps. Every machine needs it at this path"
}

# has_option NAME [VALUE]: whether it is among OPTIONS.
has_option() {
  local words=" ${OPTIONS[*]} "
  [[ $words == *" $1${2:+ $2} "* || $words == *" $1=${2:-}"* || -z ${2:-} && $words == *" $1 "* ]]
}

# One row per rank. Hosts are filled in order, so the stages of a pipeline's replica, which are neighbors, share a host.
# show_layout HOST:RANKS…
show_layout() {
  local rank=0 spec local_rank device
  printf '%-5s %-20s %-10s %s\n' rank host "local rank" device
  for spec in "$@"; do
    for ((local_rank = 0; local_rank < ${spec##*:}; local_rank++)); do
      device=cpu
      if has_option --device cuda || has_option --transport nccl; then device=cuda:$local_rank; fi
      printf '%-5d %-20s %-10d %s\n' "$rank" "${spec%:*}" "$local_rank" "$device"
      rank=$((rank + 1))
    done
  done
}

# The command as a shell reads it back, in lines of up to 100 columns.
show_command() {
  local word text="" line=""
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:,=@%+-]+$ ]]; then word=$(printf '%q' "$word"); fi
    if [[ -n $line ]] && ((${#line} + ${#word} > 97)); then
      text+="$line \\"$'\n'
      line="  $word"
    else
      line+="${line:+ }$word"
    fi
  done
  printf '%s\n' "$text$line"
}
