# shellcheck shell=bash
# The names of the steps, as a user types them. Sourced by ./ladder and the scripts in scripts/cluster, which set ROOT.

steps() {
  local folder
  for folder in "$ROOT"/step[0-9]*_*/; do
    if [[ -f $folder/CMakeLists.txt ]]; then basename "$folder"; fi
  done | sort -V
}

# nearest WORD KNOWN…: ", did you mean X?" if a known word is similar, otherwise a full stop.
nearest() {
  python3 -c 'import difflib, sys
near = difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1, 0.5)
print(f", did you mean {near[0]}?" if near else ".", end="")' "$@" 2>/dev/null || printf .
}

# resolve_step WORD [NAME…]: the step with that name, first part of a name, or number; or one of these other names.
resolve_step() {
  local word=$1 step
  shift
  for step in $(steps) "$@"; do
    case $step in
      "$word" | "$word"_* | "step$word"_*) printf '%s' "$step"; return ;;
    esac
  done
  # shellcheck disable=SC2046
  usage_error "there is no step '$word'$(nearest "$word" $(steps) "$@") The steps: $(steps | xargs)${*:+, and $*}"
}

program() { printf '%s' "$ROOT/build/$BUILD/$1/$1"; }
