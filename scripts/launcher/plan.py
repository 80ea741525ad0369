"""./ladder plan: which steps can train a model on so many ranks with so much memory, and how long they take.

Memory and what is sent come from each step's own plans (--dry-run --json), exactly and for any number of ranks. The time comes
from plan_time.py, with speeds that plan_speed.py measures.
"""

import functools
import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import NamedTuple

from launcher.build import need_release, num_cores
from launcher.checkout import chosen_kind
from launcher.console import Parser, count_from, fail, nearest, option_of, read_link, read_pair, reader, say, usage_error
from launcher.launch import train
from launcher.plan_speed import MOST_LAYERS, measure, said_speed
from launcher.plan_time import LOOPS, Link, WrongPlan, estimate
from launcher.processes import call, signals_end_us
from launcher.steps import trainer_in
from launcher.tables import table

ABOUT = """\
Which steps can train this model on N ranks, and how long an optimizer step takes.

    ./ladder plan --ranks 4 --memory 1GiB --link 50:1 --layers 8 --channels 256
    ./ladder plan --ranks 1000 --memory 80GiB --link 5:400 --speed 300:2000 --device cuda --layers 32 --channels 4096

All other words are options of the trainers; --micro-batch-size and --num-microbatches are those of each of N replicas. A
pipeline has fewer replicas and more microbatches, so that all steps train on as many rows. Bytes are exact, from each step's
own plans. Without --speed, a short run of step 3 measures this machine, with as many ranks as share it. With --speed, nothing
depends on this machine, and --device cuda plans for GPUs."""

# What each option of a trainer does to an estimate. Those not measured change no time, because a step of the run that is
# measured would take as long. An evaluation and a save are not part of a step's time.
PLANNED = """model context layers heads kv-heads channels mlp-channels vocab-size tie-embeddings tokenizer micro-batch-size
    num-microbatches optimizer precision grad-dtype masters steps bucket-mb prefetch pipeline-stages pipeline-schedule
    chunks-per-stage accumulation local-batch-size sync-every fragments sync-delay wire save-every init-from device
    eval-every eval-samples""".split()
MEASURED = "threads products gradient-sum data rows norm-eps rope-theta order tail overfit-one-batch".split()
NEUTRAL = """seed lr min-lr lr-schedule warmup-steps weight-decay beta1 beta2 eps clip-norm loss-scale loss-scale-window out
    resume log-every val-data save-dtype keep sample save-reference quiet memory-cap-mb alpha
    outer-lr outer-momentum reduction nccl-timeout deterministic""".split()
REFUSED = {
    "transport": "it plans for ranks under mpirun",
    "rank": "it plans for all ranks",
    "check-collectives": "checking sends more than the plans say",
    "microbatches-per-step": "give --num-microbatches, those of each replica",
    "docs-per-step": "with it, each step decides anew how many microbatches it has",
    "trace": "it trains only to measure",
    "config": "give options one by one",
    "dry-run": "it prints what ./ladder train STEP --dry-run prints, for all steps",
    "json": "it prints a table",
    "print-config": "it trains nothing: ./ladder train STEP --print-config",
    "show-schedule": "it draws nothing: ./ladder train step8 --show-schedule",
}
SHAPE = "model context layers heads kv-heads channels mlp-channels tie-embeddings rope-theta norm-eps".split()
OWN = ("ranks", "link", "help")  # of the planner, with the trainers' meaning
UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
STEP0, STEP3, STEP8, STEP9 = "step0_single_gpu", "step3_naive_dp", "step8_pipeline_ga", "step9_diloco"
MOST_FORWARDS = 20_000  # of a pipeline that is simulated
MOST_LAYERS_PASSED = 1_000_000  # by all microbatches of another step, one after the other


# ---- options ----------------------------------------------------------------------------------------------------------


def read_bytes(text):
    found = re.fullmatch(r"([\d.]+)\s*([a-z]*)", text.lower())
    if not found or found[2] not in UNITS or found[1].count(".") > 1 or not found[1].strip("."):
        raise ValueError(text)
    if (size := float(found[1]) * UNITS[found[2]]) > 1e18:
        raise ValueError(text)
    return int(size)


def read_speed(text):
    tflops, gbps = read_pair(text)
    if tflops == 0:
        raise ValueError(text)
    return tflops, gbps


def parse(words):
    parser = Parser("plan", ABOUT, usage="./ladder plan --ranks N [options]")
    parser.add_argument("--ranks", metavar="N", type=count_from(1, 99999), required=True)
    parser.add_argument("--memory", metavar="BYTES", type=reader(read_bytes, "a size such as 512MiB, 2GiB or 80GB"),
                        help="that a rank may hold: 512MiB, 2GiB, 80GB; by default, any amount")  # fmt: skip
    parser.add_argument("--link", metavar="US:GBPS", type=read_link,
                        help="each rank's link, as the trainers' --link: microseconds per message, and 10^9 bits per second; "
                        "by default, all ranks are on this machine, whose transport is measured")  # fmt: skip
    parser.add_argument("--speed", metavar="TFLOPS:GBPS", type=reader(read_speed, "TFLOPS:GBPS, such as 300:2000"),
                        help="measure nothing: a rank sustains so many 10^12 operations, and reads so many 10^9 bytes of memory, per second")  # fmt: skip
    parser.add_argument("--here", metavar="K", type=count_from(1, 9999),
                        help="ranks that share a machine like this one; by default all without --link, else one per core")  # fmt: skip
    arguments, words = parser.parse_known_args(words)
    check_words(words)
    device = option_of(words, "device")
    if device not in (None, "cpu") and not arguments.speed:
        usage_error(f"--device {device}: plan measures this machine's CPU; --speed says how fast a GPU is")
    return arguments, words


def names_in(words):
    return [word[2:].partition("=")[0] for word in words if word.startswith("--")]


def check_words(words):
    known = [f"--{name}" for name in (*PLANNED, *MEASURED, *NEUTRAL, *REFUSED)]
    for name in names_in(words):
        if name in REFUSED:
            usage_error(f"plan does not take --{name}: {REFUSED[name]}")
        if f"--{name}" not in known:
            usage_error(f"there is no option '--{name}'{nearest(f'--{name}', known)}")
    start = option_of(words, "init-from")
    if start and not Path(start).exists():
        fetched = start if start.count("/") == 1 else "OWNER/NAME"
        usage_error(f"--init-from {start}: no such file or folder. Ladder downloads nothing. A model of the Hub is "
                    f"fetched by: hf download {fetched} --local-dir FOLDER (pip install huggingface_hub)")  # fmt: skip
    stages = option_of(words, "pipeline-stages")
    if stages is not None and not (stages.isascii() and stages.isdigit() and int(stages)):
        usage_error(f"--pipeline-stages is '{stages}', it must be a whole number from 1 on")


def without(words, names):
    """The words but for these options and their values."""
    kept, is_left_out = [], False
    for word in words:
        if word.startswith("--"):
            is_left_out = word[2:].partition("=")[0] in names
        if not is_left_out:
            kept.append(word)
    return kept


def measured_words(words, options):
    """Of the run that is measured: what makes a difference and is an option of step 3; it must not write where a run would."""
    unwanted = [name for name in names_in(words) if name not in (*PLANNED, *MEASURED) or name not in options]
    return without(words, [*unwanted, "save-every", "steps"])


def with_shape(words, facts):
    """The words with options of the shape instead of --init-from, of which the run that is measured needs neither the
    parameters nor all layers. `facts` are a step's, with the words."""
    if "init-from" not in names_in(words):
        return tuple(words)
    values = {name: facts["config"][name] for name in SHAPE} | {"vocab-size": facts["vocabulary"]}
    shape = [f"--{name}={value if name == 'model' else json.dumps(value)}" for name, value in values.items()]
    tokenizer = [f"--tokenizer={facts['tokenizer']}"] if facts["tokenizer"] else []
    return (*without(words, ["init-from", *values]), *shape, *tokenizer)


# ---- what the steps' own plans say ------------------------------------------------------------------------------------


class Refusal(Exception):
    """By a trainer: its message."""


class Trainers:
    """The programs in a build folder."""

    def __init__(self, build):
        self.build = build

    def output(self, step, *words):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            code = call([trainer_in(self.build, step), *words], stdout=out, stderr=err)
            texts = [file.seek(0) or file.read() for file in (out, err)]
        if code:
            raise Refusal(texts[1].strip().removeprefix("error: "))
        return texts[0]

    @functools.cache
    def options(self, step):
        """The names of its options."""
        return set(re.findall(r"^ +--([a-z0-9-]+)", self.output(step, "--help"), re.MULTILINE))

    def words_of(self, step, words):
        """Those that are options of this step."""
        return without(words, [name for name in names_in(words) if name not in self.options(step)])

    @functools.cache
    def facts(self, step, ranks, words):
        """Raises Refusal."""
        return json.loads(self.output(step, *self.words_of(step, words), "--dry-run", str(ranks), "--json"))

    def train(self, step, ranks, words):
        """The report."""
        return train(trainer_in(self.build, step), ranks, words)


class Candidate(NamedTuple):
    step: str
    words: tuple  # besides those of the user

    def name(self):
        said = {"pipeline-stages": "{} stages", "pipeline-schedule": "{}", "sync-every": "every {} steps"}
        values = {option: option_of(self.words, option) for option in said}
        return ", ".join([self.step.split("_")[0], *(said[option].format(value) for option, value in values.items() if value)])


def candidates(ranks, words, layers, microbatches):
    """Steps 3 to 7, pipelines with several numbers of stages and schedules, and rounds of two lengths."""
    given = set(names_in(words))
    yield from (Candidate(step, ()) for step in LOOPS if step not in (STEP8, STEP9))
    all_stages = [2**i for i in range(1, 7) if ranks % 2**i == 0] + ([ranks] if ranks & (ranks - 1) and ranks > 1 else [])
    fixed_stages = option_of(words, "pipeline-stages")
    for stages in [int(fixed_stages)] if fixed_stages else [p for p in all_stages if p <= layers]:
        own = [] if fixed_stages else ["--pipeline-stages", str(stages)]
        count = [] if given & {"local-batch-size", "accumulation"} else ["--num-microbatches", str(microbatches * stages)]
        schedules = [[]] if "pipeline-schedule" in given else [["--pipeline-schedule", s] for s in ("1f1b", "gpipe", "zero-bubble")]
        if "pipeline-schedule" not in given and 2 * stages <= layers:
            schedules.append(["--pipeline-schedule", "interleaved", "--chunks-per-stage", "2"])
        if stages * microbatches * stages <= MOST_FORWARDS:
            yield from (Candidate(STEP8, (*own, *count, *schedule)) for schedule in schedules)
    rounds = [[]] if "sync-every" in given else [["--sync-every", "20"], ["--sync-every", "100"]]
    yield from (Candidate(STEP9, tuple(own)) for own in rounds)


# ---- estimates --------------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    candidate: Candidate
    refusal: str = ""  # why not; then there is nothing else
    state_bytes: int = 0  # of the fullest rank, at most
    working_bytes: int = 0  # on top, at most
    sent_bytes: int = 0  # per step, by the rank that sends most
    step_s: float = 0.0
    waiting_s: float = 0.0

    @property
    def held_bytes(self):
        return self.state_bytes + self.working_bytes

    def fits(self, memory):
        return not self.refusal and (memory is None or self.held_bytes <= memory)


class Planner:
    def __init__(self, trainers, ranks, words, link=None, speed=None, here=None):
        self.trainers, self.ranks, self.words = trainers, ranks, tuple(words)
        self.link = Link(link[0] * 1e-6, 8e-9 / link[1]) if link else Link()
        self.whole = trainers.facts(STEP3, ranks, self.words)
        self.layers = len(self.whole["layers"]) - 2
        if not self.whole["config"]["steps"]:
            raise Refusal("--steps 0 takes no step that could be planned: leave it out")
        if (count := self.whole["microbatches"]) * self.layers > MOST_LAYERS_PASSED:
            raise Refusal(f"a step of {count:,} microbatches is too long to be planned, one after the other: plan a shorter one")
        self.fresh = with_shape(self.words, self.whole)  # words of a model that is not read
        self.here = min(ranks, here or (max(1, num_cores() // self.whole["config"]["threads"]) if link else ranks))
        self.is_of_this_machine = not speed
        self.speed = said_speed(*speed, self.whole) if speed else self.measured()

    def measured(self):
        say(f"measuring: step 3 on {self.here} rank(s) of this machine, with {min(self.layers, MOST_LAYERS)} layers")
        return measure(self.trainers, STEP3, self.here, measured_words(self.fresh, self.trainers.options(STEP3)), self.layers)

    def plan(self, candidate):
        try:
            facts = self.trainers.facts(candidate.step, self.ranks, (*self.words, *candidate.words))
        except Refusal as refusal:
            return Planned(candidate, str(refusal))
        state = [sum(rank["at_most"].values()) + rank["holds"]["communication"] for rank in facts["ranks"]]
        working = [rank["working"] for rank in facts["ranks"]]
        fullest = max(range(len(state)), key=lambda stage: state[stage] + working[stage])
        sent = max(sum(op["bytes_sent"] for op in rank["sends"].values()) / rank["in_steps"] for rank in facts["ranks"])
        with signals_end_us():
            times = estimate(facts, self.speed, self.link)
        return Planned(candidate, "", state[fullest], working[fullest], sent, *times)


# ---- what it says -----------------------------------------------------------------------------------------------------


def size_text(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def time_text(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def choose(plans, memory):
    """The best three: of each step the fastest that fits. Step 9, which computes something else, is none of them."""
    fitting = [p for p in plans if p.fits(memory) and p.candidate.step != STEP9]
    best = {}
    for plan in sorted(fitting, key=lambda p: p.step_s):
        best.setdefault(plan.candidate.step, plan)
    return list(best.values())[:3]


def verdict(plan, best, memory):
    if plan.refusal:
        return plan.refusal
    if not plan.fits(memory):
        return f"needs {size_text(plan.held_bytes)} of {size_text(memory)}"
    if plan in best:
        return f"best {best.index(plan) + 1}"
    if not best:
        return "computes something else: compare its losses"
    ratio = plan.step_s / best[0].step_s
    time = f"{ratio:.2f} times the best's time" + (f", waits {100 * plan.waiting_s / plan.step_s:.0f}% of it" if plan.step_s else "")
    return f"{time}; computes something else" if plan.candidate.step == STEP9 else time


def show(planner, plans, memory):
    best = choose(plans, memory)
    lines = [["", "state", "on top", "sends per step", "time per step", ""]]
    for plan in sorted(plans, key=lambda p: (best.index(p) if p in best else len(best), bool(p.refusal), not p.fits(memory), p.step_s)):
        sizes = map(size_text, (plan.state_bytes, plan.working_bytes, plan.sent_bytes))
        numbers = ["-"] * 4 if plan.refusal else [*sizes, time_text(plan.step_s)]
        lines.append([plan.candidate.name(), *numbers, verdict(plan, best, memory)])
    print(f"{planner.whole['parameters']:,} parameters, {planner.whole['tokens']:,} tokens per step, {planner.ranks} rank(s)\n")
    print(table(lines))
    print("\nState and what is sent are exact. On top come, at most, activations, what backward computes with, token ids and buffers.")
    print("Times are estimated for this machine." if planner.is_of_this_machine else "Nothing here depends on this machine.")
    for number, plan in enumerate(best, 1):
        step = plan.candidate.step
        words = planner.trainers.words_of(step, [*planner.words, *plan.candidate.words])
        print(f"{number}.  ./ladder train {step.split('_')[0]} --ranks {planner.ranks} {shlex.join(words)}".rstrip())
    if not best:
        print("Nothing fits: use more ranks, a smaller --micro-batch-size, or --precision bf16.")


def run(words):
    arguments, words = parse(words)
    kind = chosen_kind()
    need_release(kind, *LOOPS)
    try:
        planner = Planner(Trainers(kind.build), arguments.ranks, words, arguments.link, arguments.speed, arguments.here)
        plans = [planner.plan(each) for each in candidates(planner.ranks, words, planner.layers, planner.whole["microbatches"])]
    except Refusal as refusal:
        usage_error(str(refusal))
    except WrongPlan as mistake:
        fail(str(mistake))
    show(planner, plans, arguments.memory)
    return 0 if choose(plans, arguments.memory) else 1
