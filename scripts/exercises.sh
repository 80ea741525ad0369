# shellcheck shell=bash
# Where the exercises are: those of the steps, and loss_scaler. Sourced by ./ladder and scripts/test.sh.

# folder_of_exercise NAME: from the root, the folder of its stubs and its grader.
folder_of_exercise() {
  case $1 in
    loss_scaler) printf 'common/optim/exercise' ;;
    *) printf '%s/exercise' "$1" ;;
  esac
}

lesson_of_exercise() {
  case $1 in
    loss_scaler) printf 'docs/precision.md' ;;
    *) printf '%s/README.md' "$1" ;;
  esac
}

# solution_of FILE: the solution with the name of this .stub, or of the answer that it becomes.
solution_of() {
  local folder solution name=${1##*/}
  folder=$(dirname "$1")
  name=${name%.*}.cpp
  for solution in "$(dirname "$folder")/$name" "$(dirname "$folder")"/{schedule,runner}/"$name" "$folder/solution/$name"; do
    if [[ -e $solution ]]; then printf '%s' "$solution"; fi
  done
}

# grader_of_exercise NAME: the program, from the build folder.
grader_of_exercise() {
  case $1 in
    loss_scaler) printf 'common/optim/exercise/loss_scaler_grade' ;;
    *) printf '%s/%s_grade' "$1" "$1" ;;
  esac
}

# The numbers of ranks on which CMake runs the grader.
ranks_of_exercise() {
  local cmake="$ROOT/$1/CMakeLists.txt" ranks
  if [[ $1 == loss_scaler ]]; then cmake="$ROOT/common/optim/exercise/CMakeLists.txt"; fi
  ranks=$(sed -nE '/^ *RANKS /{s/^ *RANKS ([0-9 ]+).*/\1/p;q}' "$cmake")
  printf '%s' "${ranks:-1}"
}
