# shellcheck shell=bash
# The names of the steps, as a user types them. Sourced by ./ladder and the scripts in scripts/cluster, which set ROOT.

# The folders of the steps, from the root, each followed by those of its chapters that train.
step_folders() {
  (cd "$ROOT" && { ls -d step[0-9]*_*/CMakeLists.txt; grep -l '^ladder_add_step' step[0-9]*_*/*/CMakeLists.txt; } 2>/dev/null || true) |
    xargs -rn1 dirname | sort -V
}
steps() { step_folders | xargs -rn1 basename; }

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

# program STEP [BUILD]
program() { printf '%s' "$ROOT/build/${2:-$BUILD}/$(step_folders | grep -xE "(.*/)?$1")/$1"; }
