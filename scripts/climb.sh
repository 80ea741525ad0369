# ./ladder run: trains all stages and compares them. Sourced by ./ladder, which sets ROOT.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153  # STOPPED and OPTIONS belong to launch.sh

# scripts/ladder_stages.tsv says which stages are run and what each must equal. All stages see the same rows: 8 per step,
# times the number of microbatches. In the usual run the loss must fall below that of a bigram model; with --steps, or
# options that change what is learned, it only has to fall.
command_run() {
  local num_steps=150 num_microbatches=1 is_short="" data=corpus val_data="" evaluation="--eval-every 50 --eval-samples 64" options=()
  local stages programs out
  RANKS=2
  read_run_options "$@"
  mapfile -t stages < <(stages_of_run "$num_microbatches" "$data$val_data")
  mapfile -t programs < <(stage_programs)
  out="$ROOT/runs/ladder-$(date +%Y%m%d-%H%M%S)"
  prepare_release
  if is_built "$BUILD" "${programs[@]}"; then
    unlock_setup
    check_stages "nothing was trained" "${stages[@]}"
  else
    need_built "$BUILD" "$(cut -f2 <<<"${stages[0]}")"
    check_stages "nothing was trained" "${stages[0]}"
    build_behind "${programs[@]}"
    unlock_setup  # the build keeps the lock
  fi

  mkdir -p "$ROOT/runs" && mkdir "$out"
  say "training ${#stages[@]} stages for $num_steps steps on $RANKS ranks: $(describe_training)"
  say "Everything is written to ${out#"$ROOT"/}."
  STOPPED="stopped (exit code 75). ./ladder run cannot resume; what the stages wrote stays in ${out#"$ROOT"/}"
  climb
  "$(python)" "$ROOT/scripts/ladder_table.py" "$out" --ranks "$RANKS" ${is_short:+--short}
}
# Sets variables of command_run: num_steps, num_microbatches, is_short, data, val_data, evaluation, and the trainers'
# options.
read_run_options() {
  split_ranks "$@"
  set -- "${OPTIONS[@]}"
  while (($# > 0)); do
    case $1 in
      --help | -h) help; exit 0 ;;
      --out | --out=*) usage_error "--out is not for run: it makes a folder under runs/" ;;
      --micro-batch-size | --micro-batch-size=*) usage_error "--micro-batch-size is not for run: it divides 8 rows per step among the ranks" ;;
      --resume | --resume=*) usage_error "--resume is not for run: it always starts anew; ./ladder train can resume a run" ;;
      --config | --config=*) usage_error "--config is not for run, which sets most options itself: give options one by one" ;;
      --dry-run | --dry-run=* | --print-config) usage_error "$1 is not for run, which trains: ./ladder train STEP $1" ;;
    esac
    case $1 in
      --steps) (($# > 1)) || usage_error "--steps needs a number"; num_steps=$2 is_short=1; shift 2; continue ;;
      --steps=*) num_steps=${1#*=} is_short=1; shift; continue ;;
      --num-microbatches) num_microbatches=${2:-} is_short=1 ;;
      --num-microbatches=*) num_microbatches=${1#*=} is_short=1 ;;
      --data=corpus) ;;
      --data) if [[ ${2:-} != corpus ]]; then data=own is_short=1; fi ;;
      --data=*) data=own is_short=1 ;;
      --val-data*) val_data=own ;;
      --quiet | --log-every* | --eval-* | --save-every* | --keep* | --sample* | --transport* | --link*) ;;
      --*) is_short=1 ;;
    esac
    options+=("$1")
    shift
  done
  [[ $num_steps =~ ^[1-9][0-9]{0,8}$ ]] || usage_error "--steps is '$num_steps', it must be a number from 1"
  [[ $num_microbatches =~ ^[1-9][0-9]{0,8}$ ]] || usage_error "--num-microbatches is '$num_microbatches', it must be a number from 1"
  [[ $RANKS == [1248] ]] || usage_error "--ranks is $RANKS, which does not divide the 8 rows of a step: choose 1, 2, 4 or 8 (./ladder train takes any number)"
  if [[ $data == own && -z $val_data ]]; then evaluation=""; fi # nothing to evaluate on
}
describe_training() {
  printf '4 layers, 4 heads, 128 channels, context 128'
  if [[ $data == corpus ]]; then printf ', the built-in corpus'; fi
  if ((${#options[@]} > 0)); then printf ', with %s' "${options[*]}"; fi
}
# stages_of_run NUM_MICROBATCHES DATA: the lines of the stages of such a run; DATA is corpus, or something else.
stages_of_run() {
  grep -v '^#' "$ROOT/scripts/ladder_stages.tsv" | awk -F '\t' -v m="$1" -v data="$2" \
    '$4 == "always" || ($4 == "m>1" && m > 1) || $4 == data'
}
stage_programs() { grep -v '^#' "$ROOT/scripts/ladder_stages.tsv" | cut -f2 | sort -u; }

# These are parts of command_run and use its variables. stage_command sets COMMAND for one line of the stages.
climb() {
  local i start name step ranks stage_options
  local slow_seconds=0 fast_seconds=0 num_fast=0  # stages so far: on one rank, on all ranks; how many on all ranks
  for i in "${!stages[@]}"; do
    if ((i == 1)) && finish_build; then check_stages "only step 0 was trained" "${stages[@]}"; fi
    IFS=$'\t' read -r name step ranks _ _ _ _ stage_options <<<"${stages[i]}"
    stage_command
    say "stage $((i + 1)) of ${#stages[@]}: $name, $ranks rank(s)$(time_left $((${#stages[@]} - i)))"
    start=$SECONDS
    launch "$ranks" "${COMMAND[@]}" --out "$out/$name"
    exit_if_stopping
    if ((ranks < RANKS)); then
      slow_seconds=$((SECONDS - start))
    else
      fast_seconds=$((fast_seconds + SECONDS - start)) num_fast=$((num_fast + 1))
    fi
  done
}
# time_left NUM_STAGES: an estimate from the stages so far. If only one rank was measured: at most as long as that, and at
# least its share if every core helps.
time_left() {
  local helpers=$((RANKS < $(nproc) ? RANKS : $(nproc))) least most
  if ((num_fast > 0)); then
    most=$(($1 * fast_seconds / num_fast)) least=$(($1 * fast_seconds / num_fast))
  elif ((slow_seconds > 0)); then
    most=$(($1 * slow_seconds)) least=$(($1 * slow_seconds / helpers))
  else
    return 0
  fi
  least=$(((least + 30) / 60)) most=$(((most + 30) / 60))
  if ((most < 1)); then
    printf '; less than a minute left in all'
  elif ((least == most)); then
    printf '; about %d min left in all' "$most"
  elif ((least < 1)); then
    printf '; at most %d min left in all' "$most"
  else
    printf '; %d to %d min left in all' "$least" "$most"
  fi
}
# check_stages WHAT_HAPPENED LINE…: finds a trainer that refuses an option before the others have trained.
check_stages() {
  local what=$1 line name step ranks stage_options
  shift
  for line in "$@"; do
    IFS=$'\t' read -r name step ranks _ _ _ _ stage_options <<<"$line"
    stage_command
    "${COMMAND[@]}" --dry-run "$ranks" >/dev/null ||
      usage_error "$what: $name refuses these options. For options of single steps use ./ladder train STEP"
  done
}
# round_length NUM_STEPS: the largest number up to ten that divides it.
round_length() {
  local length
  for length in 10 9 8 7 6 5 4 3 2 1; do
    if (($1 % length == 0)); then printf '%d' "$length"; return; fi
  done
}
stage_command() {
  local words i pipeline_stages=$((RANKS % 2 == 0 ? 2 : RANKS))
  if [[ $ranks == N ]]; then ranks=$RANKS; fi
  if [[ $stage_options == - ]]; then stage_options=""; fi
  read -ra words <<<"$stage_options"
  for i in "${!words[@]}"; do
    case ${words[i]} in
      N) words[i]=$RANKS ;;
      P) words[i]=$pipeline_stages ;;
      R) words[i]=$((RANKS / pipeline_stages)) ;;
      S) words[i]=$((num_steps < 20 ? num_steps : 20)) ;;
      D) words[i]=$(round_length "$num_steps") ;;
      RUN/*) words[i]=$out/${words[i]#RUN/} ;;
    esac
  done
  # Only next-token prediction makes a model that can continue a text.
  if [[ $stage_options != *--objective* ]]; then words+=(--sample "CREATE TABLE"); fi
  # shellcheck disable=SC2206
  COMMAND=("$(program "$step")" --layers 4 --heads 4 --channels 128 --context 128 --micro-batch-size $((8 / RANKS))
    --steps "$num_steps" --lr 6e-3 --warmup-steps 25 --log-every 25 $evaluation
    "${words[@]}" "${options[@]}")
}
