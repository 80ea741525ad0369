"""./ladder plan: which steps can train a model on so many ranks with so much memory, and how long
they take.

Memory and what is sent come from each step's own plans (plan_steps.py), exactly and for any number
of ranks. The time comes from ladder_clock (plan_time.py), with speeds that plan_speed.py
measures.
"""

import json
import re
import shlex
import textwrap
from argparse import ArgumentTypeError
from pathlib import Path
from typing import NamedTuple

from launcher.build import need_release, num_cores
from launcher.checkout import chosen_kind
from launcher.console import (
    Parser,
    count_from,
    fail,
    nearest,
    option_of,
    read_link,
    read_pair,
    reader,
    say,
    usage_error,
)
from launcher.plan_speed import MOST_LAYERS, measure
from launcher.plan_steps import (
    Candidate,
    Refusal,
    Trainers,
    candidates,
    names_in,
    planned_steps,
    without,
)
from launcher.plan_time import Clock, WrongPlan
from launcher.processes import signals_end_us
from launcher.tables import digits, table
from launcher.trainer_options import options_of

ABOUT = """\
Which steps can train this model on N ranks, and how long an optimizer step takes.

    ./ladder plan --ranks 4 --memory 1GiB --link 50:1 --layers 8 --channels 256
    ./ladder plan --ranks 64 --ranks-per-machine 8 --link 3:1800 --outer-link 20:200 --speed 300:2000 --device cuda
    ./ladder plan --ranks 1000 --memory 80GiB --link 5:400 --speed 300:2000 --device cuda --layers 32 --channels 4096

All other words are options of the trainers; --micro-batch-size and --num-microbatches are those of each of N replicas. A
pipeline has fewer replicas and more microbatches, so that all steps train on as many rows. Bytes are exact, from each step's
own plans. Without --speed, a short run of step 3 measures this machine, with as many ranks as share it. With --speed, nothing
depends on this machine, --link says what connects the ranks, and --device cuda plans for GPUs."""

# What the options of the trainers do to an estimate. All that are in no list are planned: they
# change what a step holds, sends or computes. Those measured change no plan, but the speed; those
# neutral change neither, because a step of the run that is measured would take as long. An
# evaluation and a save are not part of a step's time.
MEASURED = "threads products gradient-sum data rows norm-eps gelu rope-theta rope-scaling no-rope-interval order tail overfit-one-batch".split()
NEUTRAL = """seed lr min-lr lr-schedule warmup-steps weight-decay beta1 beta2 eps clip-norm loss-scale loss-scale-window out
    resume log-every val-data save-dtype keep sample quiet memory-cap-mb alpha
    outer-lr outer-momentum reduction nccl-timeout deterministic ranks-per-machine""".split()
REFUSED = {
    "transport": "it plans for ranks under mpirun",
    "rank": "it plans for all ranks",
    "simulate-ranks": "it plans for ranks that are there",
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
SHAPE = "model context layers heads kv-heads head-channels channels mlp-channels tie-embeddings rope-theta rope-scaling no-rope-interval norm-eps gelu".split()
OWN = ("ranks", "link", "outer-link", "help")  # of the planner, with the trainers' meaning
UNITS = "kmgt"  # the first letters: thousands, or 1,024s if an i follows
LEAST_BARE = 2**20  # fewer bytes without a unit are a forgotten unit
REFERENCE = "step3_naive_dp"  # that is measured, and tells the shape of model and batch
MOST_RANKS = 99_999
WIDTH = 100  # in letters, of what is said
MOST_LAYERS_PASSED = 1_000_000  # by all microbatches of another step, one after the other


# ---- options ----------------------------------------------------------------------------------------------------------


def read_bytes(text):
    """'80GB', '16G', '1.5 GiB', '512mib' and '1e9' are sizes."""
    number = r"(\d+\.?\d*|\.\d+)(?:e\+?\d{1,3})?"
    if not (
        found := re.fullmatch(rf"(?a)({number})\s*(?:([{UNITS}])(i?))?(b?)", text.strip().lower())
    ):
        raise ValueError(text)
    letter, is_binary = found[3], bool(found[4])
    power = UNITS.index(letter) + 1 if letter else 0
    size = float(found[1]) * (1024 if is_binary else 1000) ** power
    if not 1 <= size <= 1e18:
        raise ValueError(text)
    if not letter and not found[5] and size < LEAST_BARE:
        raise ArgumentTypeError(
            f"'{text}' has no unit, and {digits(size)} B are too few: {text}GB, {text}GiB?"
        )
    return int(size)


def read_speed(text):
    tflops, gbps = read_pair(text)
    if tflops == 0:
        raise ValueError(text)
    return tflops, gbps


def parse(words):
    parser = Parser("plan", ABOUT, usage="./ladder plan --ranks N [options]")
    parser.add_argument("--ranks", metavar="N", type=count_from(1, MOST_RANKS), required=True)
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=reader(read_bytes, "a size such as 512MiB, 2GiB or 80GB"),
        help="that a rank may hold: 512MiB, 2GiB, 80GB; by default, any amount",
    )
    parser.add_argument(
        "--link",
        metavar="US:GBPS",
        type=read_link,
        help="each rank's link, as the trainers' --link: microseconds per round of messages, and 10^9 bits per second; "
        "by default, all ranks are on this machine, whose transport is measured",
    )
    parser.add_argument(
        "--outer-link",
        metavar="US:GBPS",
        type=read_link,
        help="each rank's link to other machines, if --ranks-per-machine says how many ranks share one",
    )
    parser.add_argument(
        "--speed",
        metavar="TFLOPS:GBPS",
        type=reader(read_speed, "TFLOPS:GBPS, such as 300:2000"),
        help="measure nothing: a rank sustains so many 10^12 operations, and reads so many 10^9 bytes of memory, per second",
    )
    parser.add_argument(
        "--here",
        metavar="K",
        type=count_from(1, 9999),
        help="ranks that share a machine like this one; by default all without --link, else one per core",
    )
    arguments, words = parser.parse_known_args(words)
    check_words(words)
    check_machine(arguments, words)
    device = option_of(words, "device")
    if device not in (None, "cpu") and not arguments.speed:
        usage_error(
            f"--device {device}: plan measures this machine's CPU; --speed says how fast a GPU is"
        )
    return arguments, words


def check_machine(arguments, words):
    """Asks for what a time depends on: a link that is not given would be infinitely fast."""
    ranks, here = arguments.ranks, arguments.here
    if arguments.speed and here:
        usage_error(
            f"--here {here} says whose speed is measured, and with --speed nothing is: leave one of them out"
        )
    if machines := option_of(words, "ranks-per-machine"):
        if not (arguments.link and arguments.outer_link):
            usage_error(
                f"--ranks-per-machine {machines}: say what connects ranks with --link, on a machine, and "
                "--outer-link, to others: for example --link 3:1800 --outer-link 20:200"
            )
    elif arguments.outer_link:
        usage_error(
            "--outer-link connects machines: say how many ranks share one with --ranks-per-machine"
        )
    if arguments.link or ranks == 1:
        return
    example = "for example --link 5:400 for 5 us per message and 400 Gbit/s"
    if arguments.speed:
        usage_error(
            f"--speed measures nothing, so --link must say what connects the {ranks} ranks: {example}"
        )
    if here and here < ranks:
        usage_error(
            f"--here {here} leaves {ranks - here} of {ranks} ranks to other machines, so --link must say what connects them: {example}"
        )


def check_words(words):
    known = [f"--{row.name}" for step in planned_steps() for row in options_of(step)]
    for name in names_in(words):
        if name in REFUSED:
            usage_error(f"plan does not take --{name}: {REFUSED[name]}")
        if f"--{name}" not in known:
            usage_error(f"there is no option '--{name}'{nearest(f'--{name}', known)}")
    start = option_of(words, "init-from")
    if start and not Path(start).exists():
        fetched = start if start.count("/") == 1 else "OWNER/NAME"
        usage_error(
            f"--init-from {start}: no such file or folder. Ladder downloads nothing. A model of the Hub is "
            f"fetched by: hf download {fetched} --local-dir FOLDER (pip install huggingface_hub)"
        )


def measured_words(words, options):
    """Of the run that is measured: what makes a difference and is an option of step 3; it must not
    write where a run would."""
    unwanted = [name for name in names_in(words) if name in NEUTRAL or name not in options]
    return without(words, [*unwanted, "save-every", "steps"])


def with_shape(words, facts):
    """The words with options of the shape instead of --init-from, of which the run that is measured
    needs neither the parameters nor all layers. `facts` are a step's, with the words."""
    if "init-from" not in names_in(words):
        return tuple(words)
    values = {name: facts["config"][name] for name in SHAPE} | {"vocab-size": facts["vocabulary"]}
    shape = [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    ]
    tokenizer = [f"--tokenizer={facts['tokenizer']}"] if facts["tokenizer"] else []
    return (*without(words, ["init-from", *values]), *shape, *tokenizer)


# ---- estimates --------------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    candidate: Candidate
    refusal: str = ""  # why not; then there is nothing else
    state_bytes: int = 0  # of the fullest rank, at most
    working_bytes: int = 0  # on top, at most
    sent_bytes: int = 0  # per step, by the rank that sends most
    step_s: float = 0.0
    waiting_s: float = 0.0
    is_equal: bool = True  # to the other steps, in what it computes
    computes: float = 1.0  # times as much as without recomputing

    @property
    def held_bytes(self):
        return self.state_bytes + self.working_bytes

    def fits(self, memory):
        return not self.refusal and (memory is None or self.held_bytes <= memory)


class Planner:
    def __init__(self, trainers, ranks, words, link=None, speed=None, here=None, outer_link=None):
        self.trainers, self.ranks, self.words = trainers, ranks, tuple(words)
        self.clock, self.links = Clock(trainers.build), (link, outer_link)
        self.whole = trainers.facts(REFERENCE, ranks, self.words)
        self.layers = len(self.whole["layers"]) - 2
        if not self.whole["config"]["steps"]:
            raise Refusal("--steps 0 takes no step that could be planned: leave it out")
        if (count := self.whole["microbatches"]) * self.layers > MOST_LAYERS_PASSED:
            raise Refusal(
                f"a step of {count:,} microbatches is too long to be planned, one after the other: plan a shorter one"
            )
        self.fresh = with_shape(self.words, self.whole)  # words of a model that is not read
        self.here = min(
            ranks,
            here or (max(1, num_cores() // self.whole["config"]["threads"]) if link else ranks),
        )
        self.is_of_this_machine = not speed
        self.speed = self.clock.said_speed(self.whole, *speed) if speed else self.measured()

    def measured(self):
        say(
            f"measuring: {REFERENCE} on {self.here} rank(s) of this machine, with {min(self.layers, MOST_LAYERS)} layers"
        )
        words = measured_words(self.fresh, self.trainers.options(REFERENCE))
        speed = measure(self.trainers, REFERENCE, self.here, words, self.layers)
        if self.here > 1 or self.ranks == 1:
            return speed
        say(
            "measuring: what sending takes of the processor, on 2 ranks, as one alone sends nothing"
        )
        sending = measure(self.trainers, REFERENCE, 2, words, self.layers)
        return speed._replace(
            call_s=sending.call_s, message_s=sending.message_s, byte_s=sending.byte_s
        )

    def plan(self, candidate):
        try:
            facts = self.trainers.facts(candidate.step, self.ranks, (*self.words, *candidate.words))
        except Refusal as refusal:
            return Planned(candidate, str(refusal))
        with signals_end_us():
            times = self.clock.estimate(facts, self.speed, self.links)
        sent = max(
            sum(op["bytes_sent"] for op in (rank["sends"] or {}).values()) / rank["in_steps"]
            for rank in facts["ranks"]
        )
        return Planned(candidate, "", *held_of(facts), sent, *times, is_equal(facts))


def is_equal(facts):
    """Workers that train on their own for a while compute something else."""
    return facts["role"] != "worker"


def computed(facts):
    """How many times what a step computes without recomputing, whose backward is twice its forward."""
    forward, backward = (
        sum(layer[f"{way}_flops"] for layer in facts["layers"]) for way in ("forward", "backward")
    )
    return (forward + backward) / (3 * forward)


def held_of(facts):
    """State and what comes on top, of the fullest rank."""
    held = [
        (sum(rank["at_most"].values()) + rank["holds"]["communication"], rank["working"])
        for rank in facts["ranks"]
    ]
    return max(held, key=sum)


# ---- what would help ---------------------------------------------------------------------------


def least_held(trainers, ranks, words):
    """What holds least, planned without times; None if every step refuses."""
    found = []
    try:
        trainers.facts(REFERENCE, ranks, words)
    except Refusal:
        return None
    for candidate in candidates(trainers, ranks, words):
        try:
            facts = trainers.facts(candidate.step, ranks, (*words, *candidate.words))
        except Refusal:
            continue
        if is_equal(facts):
            found.append(Planned(candidate, "", *held_of(facts), computes=computed(facts)))
    return min(found, key=lambda each: each.held_bytes, default=None)


def changes(ranks, config):
    """(ranks, options) that may save memory: each of the options, all, and then more ranks."""
    rows, kept = config["micro-batch-size"], config["recompute"]
    by_itself = str(rows * config["num-microbatches"])
    cheap, blocks = (
        ("--recompute", way) if kept in less else ()
        for way, less in (("cheap", ["none"]), ("blocks", ["none", "cheap"]))
    )
    fewer_rows = ("--micro-batch-size", "1", "--num-microbatches", by_itself) if rows > 1 else ()
    half = ("--precision", "bf16") if config["precision"] == "fp32" else ()
    own, all_of_them = (cheap, blocks, fewer_rows, half), blocks + fewer_rows + half
    yield from ((ranks, each) for each in dict.fromkeys((*own, all_of_them)) if each)
    for more in (2 * ranks, 8 * ranks, 64 * ranks):
        if more <= MOST_RANKS:
            yield from ((more, each) for each in dict.fromkeys(((), all_of_them)))


def remedies(trainers, ranks, words, memory):
    """(ranks, options, what holds least with them) of what fits; else of what comes nearest."""
    tried = []
    for more, options in changes(ranks, trainers.facts(REFERENCE, ranks, words)["config"]):
        enough = [(on, used) for on, used, each in tried if each.fits(memory)]
        if any(on < more or set(names_in(used)) <= set(names_in(options)) for on, used in enough):
            continue  # fewer ranks will do, or fewer options
        changed = (*without(words, names_in(options)), *options)
        if least := least_held(trainers, more, changed):
            tried.append((more, options, least))
    fitting = [each for each in tried if each[2].fits(memory)]
    return fitting or sorted(tried, key=lambda each: each[2].held_bytes)[:1]


# ---- what it says -----------------------------------------------------------------------------------------------------


def size_text(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if round(1024 * count / size, 1) >= 1024:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def time_text(seconds):
    return f"{digits(seconds)} s" if seconds >= 0.9995 else f"{digits(1000 * seconds)} ms"


def choose(plans, memory):
    """The best three: of each step the fastest that fits. What computes something else is none of
    them."""
    fitting = [p for p in plans if p.fits(memory) and p.is_equal]
    best = {}
    for plan in sorted(fitting, key=lambda p: p.step_s):
        best.setdefault(plan.candidate.step, plan)
    return list(best.values())[:3]


def verdict(plan, best, memory):
    if plan.refusal:
        return "refused"
    if not plan.fits(memory):
        return "too large"
    if plan in best:
        return f"best {best.index(plan) + 1}"
    if not best or not best[0].step_s:
        return "fits"
    ratio = plan.step_s / best[0].step_s
    return f"{f'{ratio:.2f}' if ratio < 10 else digits(ratio)} x best"


def rows_of(plans, best, memory):
    """The table's, the best first."""
    yield ["", "state", "needs", "sends", "time", "wait", ""]
    for plan in sorted(
        plans,
        key=lambda p: (
            best.index(p) if p in best else len(best),
            bool(p.refusal),
            not p.fits(memory),
            p.step_s,
        ),
    ):
        sizes = map(size_text, (plan.state_bytes, plan.held_bytes, plan.sent_bytes))
        waits = f"{100 * plan.waiting_s / plan.step_s:.0f}%" if plan.step_s else "-"
        numbers = ["-"] * 5 if plan.refusal else [*sizes, time_text(plan.step_s), waits]
        star = "" if plan.is_equal else " *"
        yield [plan.candidate.name() + star, *numbers, verdict(plan, best, memory)]


def remarks(plans, is_of_this_machine):
    """What is said below the table; a line each."""
    where = " for this machine." if is_of_this_machine else "; nothing depends on this machine."
    yield (
        "A rank needs its state, which is exact, and at most so much on top: activations, what backward computes with, token ids, buffers. "
        "What it sends per step is exact, too. Times are estimates" + where
    )
    if any(plan.candidate.words[:1] == ("--shard-ranks",) for plan in plans):
        yield (
            "--shard-ranks N keeps a copy of the state on every N neighboring ranks, at best those of a machine: gathers stay among them, "
            "and only 1/N of a gradient goes to each other copy."
        )
    if any(not plan.is_equal for plan in plans):
        yield "* It computes something else: compare the losses."
    for refusal in dict.fromkeys(plan.refusal for plan in plans if plan.refusal):
        names = "; ".join(plan.candidate.name() for plan in plans if plan.refusal == refusal)
        yield f"Refused: {names}: {refusal}"


def show(planner, plans, memory):
    best = choose(plans, memory)
    of_each = f" with {size_text(memory)} of memory" if memory else ""
    print(
        f"{planner.whole['parameters']:,} parameters, {planner.whole['tokens']:,} tokens per step, {planner.ranks} rank(s){of_each}\n"
    )
    print(table(list(rows_of(plans, best, memory))), end="\n\n")
    for remark in remarks(plans, planner.is_of_this_machine):
        print(textwrap.fill(remark, WIDTH, break_on_hyphens=False, break_long_words=False))
    for number, plan in enumerate(best, 1):
        print(
            f"{number}.  {command_of(planner.trainers, plan.candidate, planner.ranks, planner.words)}"
        )
    if not best:
        print("\n".join(what_helps(planner.trainers, planner.ranks, planner.words, plans, memory)))


def command_of(trainers, candidate, ranks, words):
    own = trainers.words_of(candidate.step, [*words, *candidate.words])
    return (
        f"./ladder train {candidate.step.split('_')[0]} --ranks {ranks} {shlex.join(own)}".rstrip()
    )


def what_helps(trainers, ranks, words, plans, memory):
    """Lines. Whatever they advise has been planned."""
    if all(plan.refusal for plan in plans):
        return ["Every step refuses these options, as said above."]
    others = [plan.candidate.step.split("_")[0] for plan in plans if plan.fits(memory)]
    fits = f"Only {others[0].replace('step', 'step ')} fits" if others else "Nothing fits"
    found = remedies(trainers, ranks, words, memory)
    if found and found[0][2].fits(memory):
        return [f"{fits}. What would help:", *(advice(ranks, *each) for each in found)]
    lines = [
        f"{fits}, nor would recomputing, another number of rows, 16 bits or more ranks help: make the model or --context smaller."
    ]
    return lines + [
        f"Of what was tried, least is held with\n{advice(ranks, *each)}" for each in found
    ]


def advice(ranks, more, options, least):
    words = shlex.join([*(["--ranks", str(more)] if more != ranks else []), *options])
    price = f", and computes {least.computes:.2f} times as much" if least.computes > 1 else ""
    return f"    {words}: {least.candidate.name()} needs {size_text(least.held_bytes)}{price}"


def run(words):
    arguments, words = parse(words)
    kind = chosen_kind()
    need_release(kind, "ladder_clock", *planned_steps())
    try:
        planner = Planner(
            Trainers(kind.build),
            arguments.ranks,
            words,
            arguments.link,
            arguments.speed,
            arguments.here,
            arguments.outer_link,
        )
        plans = [planner.plan(each) for each in candidates(planner.trainers, planner.ranks, words)]
    except Refusal as refusal:
        usage_error(str(refusal))
    except WrongPlan as mistake:
        fail(str(mistake))
    show(planner, plans, arguments.memory)
    return 0 if choose(plans, arguments.memory) else 1
