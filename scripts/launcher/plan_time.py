"""How long an optimizer step of each trainer takes: its loop again, on a clock instead of a machine.

The loop of a step's train.cpp is repeated in its order; a Rank adds up the time. All ranks do the same at the same time, so
one of them is enough; of a pipeline, all stages run. WAYS says in what steps 3 to 7 differ. What a loop sends must be what
the step's cost card says, to the byte and the message: check_sent() compares them.
"""

from typing import NamedTuple

STEP0 = "step0_single_gpu"
NORM_BLOCK = 1024  # elements of which a sharded norm gathers one sum
LONGEST_MESSAGE = 2**30


class Link(NamedTuple):
    """As --link paces it: each message takes latency_s, each byte byte_s."""

    latency_s: float = 0
    byte_s: float = 0


class Speed(NamedTuple):
    """What was measured, or said, of a rank's computations and of its transport."""

    forward_s: list  # of a microbatch, by layer
    backward_s: list
    update_s: float  # the optimizer, for each element that a rank owns
    norm_s: float  # reading an element once, for a norm
    rest_s: float  # of a step: reading data, logging
    call_s: float = 0  # of the processor, for an operation, a message and a byte
    message_s: float = 0
    byte_s: float = 0
    sharing: float = 1  # threads of all ranks per core of the machine, if there are more of them


class Sent(NamedTuple):
    """By this rank: operations, messages and bytes."""

    calls: int = 0
    messages: int = 0
    num_bytes: int = 0

    def __add__(self, more):
        return Sent(*(a + b for a, b in zip(self, more)))


def ceil_div(a, b):
    return -(-a // b)


def messages(count, num_bytes):
    return count * ceil_div(num_bytes, LONGEST_MESSAGE)


def slice_of(numel, ranks, rank):
    return numel // ranks + (rank < numel % ranks)


def scatter(numel, size, ranks, rank=0):
    """What this rank sends: to each other one its slice."""
    slices = [slice_of(numel, ranks, peer) for peer in range(ranks) if peer != rank]
    return Sent(1, sum(messages(1, s * size) for s in slices), sum(slices) * size)


def gather(numel, size, ranks, rank=0):
    own = slice_of(numel, ranks, rank) * size
    return Sent(1, messages(ranks - 1, own), (ranks - 1) * own)


def all_reduce(numel, size, ranks, rank=0):
    return scatter(numel, size, ranks, rank) + gather(numel, size, ranks, rank)._replace(calls=0)


COLLECTIVES = {"all_reduce": all_reduce, "reduce_scatter": scatter, "all_gather": gather}


class Rank:
    """A processor that computes, and a link that serves one operation after the other (PacedCommunicator)."""

    def __init__(self, speed, link):
        self.speed, self.link = speed, link
        self.now = self.link_free = self.computed = 0.0
        self.sent = {}

    def compute(self, seconds):
        self.now += seconds
        self.computed += seconds

    def link_s(self, sent):
        return sent.messages * self.link.latency_s + sent.num_bytes * self.link.byte_s

    def start(self, kind, sent):
        """Returns when it will be done. The processor copies the messages; the link carries them afterwards."""
        self.sent[kind] = self.sent.get(kind, Sent()) + sent
        if sent.messages:
            self.link_free = max(self.now, self.link_free) + self.link_s(sent)
            self.now += sent.calls * self.speed.call_s + sent.messages * self.speed.message_s + sent.num_bytes * self.speed.byte_s
        return max(self.now, self.link_free if sent.messages else 0)

    def wait(self, *done):
        self.now = max([self.now, *done])


class Loop:
    """What the loops have in common: a rank, and the plans of the step that it runs. A pipeline has one for each stage, with
    some of the layers, in the first of its replicas."""

    def __init__(self, facts, speed, link, ranks, layers):
        self.facts, self.speed, self.link, self.rank = facts, speed, link, Rank(speed, link)
        self.ranks, self.layers, self.microbatches = ranks, layers, facts["microbatches"]
        self.config, self.param_bytes, self.grad_bytes = facts["config"], facts["param_bytes"], facts["grad_bytes"]
        self.tensors = [(layer, *numels) for layer in self.layers for numels in facts["layers"][layer]["tensors"]]
        self.numel = sum(padded for _, _, padded in self.tensors)
        sharded = NORM_BLOCK * self.ranks
        self.units = [sharded * ceil_div(sum(padded for at, _, padded in self.tensors if at == layer), sharded) for layer in self.layers]

    def pieces(self, kind):
        """(layer whose backward completes it, elements) of all "tensors", "buckets" or "units"."""
        if kind == "buckets":
            return plan_buckets(self.tensors, self.grad_bytes, int(self.config["bucket-mb"] * 2**20))
        return [(layer, numel) for layer, numel, _ in self.tensors] if kind == "tensors" else list(enumerate(self.units))

    def start(self, kind, numel, size):
        """Returns when it will be done."""
        return self.rank.start(kind, COLLECTIVES[kind](numel, size, self.ranks))

    def sum_of_numbers(self, count):
        self.rank.wait(self.start("all_reduce", count, 8))

    def sharded_norm(self):
        self.rank.wait(self.start("all_gather", sum(self.units) // NORM_BLOCK, 8))

    def update(self, num_owned):
        """Gradient norm and optimizer, of the elements that the rank owns."""
        self.rank.compute(num_owned * (self.speed.norm_s + self.speed.update_s))


def plan_buckets(tensors, size, capacity):
    """(layer that completes it, elements), from the last tensor to the first."""
    buckets, is_open = [], False
    for layer, _, padded in reversed(tensors):
        is_open = is_open and (buckets[-1][1] + padded) * size <= capacity
        buckets[-1:] = [(layer, buckets[-1][1] + padded)] if is_open else [*buckets[-1:], (layer, padded)]
        is_open = True
    return buckets


# ---- steps 3 to 7 -----------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """Of gradients and parameters, in a step whose ranks all do the same."""

    pieces: str  # of the gradient, that are sent one by one: "tensors", "buckets" or "units"
    when: str  # during "each" backward, during the "last" one, "after" all of them, or "never"
    is_alone: bool = False  # a piece waits until the one before it has arrived
    is_sharded: bool = False  # a rank owns a slice of each unit, gets the sum of that, and updates it
    unshards: bool = False  # units are gathered while they are needed; else all of them, once they are updated


WAYS = {
    "step3_naive_dp": Way("tensors", "after", is_alone=True),
    "step4_bucketed_ddp": Way("buckets", "last"),
    "step5_zero1": Way("units", "last", is_sharded=True),
    "step6_zero2": Way("units", "each", is_alone=True, is_sharded=True),
    "step7_zero3": Way("units", "each", is_alone=True, is_sharded=True, unshards=True),
}
ALONE = Way("units", "never")


def accumulate(loop, way):
    """All microbatches, until their gradients have arrived. Of unsharded units, forward leaves the last one whole, and a tied
    embedding; the embedding's backward reads no parameter."""
    rank, last, ahead = loop.rank, loop.layers[-1], loop.config.get("prefetch", 0)
    pieces, gathers, reductions = loop.pieces(way.pieces), {}, []

    def unshard(units, needed):
        for unit in units if way.unshards else ():
            if unit not in gathers:
                gathers[unit] = loop.start("all_gather", loop.units[unit], loop.param_bytes)
        rank.wait(gathers.get(needed, 0))

    def send(layer):
        for numel in (numel for at, numel in pieces if at == layer):
            rank.wait(*reductions[-1:] if way.is_alone else [])
            reductions.append(loop.start("reduce_scatter" if way.is_sharded else "all_reduce", numel, loop.grad_bytes))

    for number in range(loop.microbatches):
        gathers.clear()
        for layer in loop.layers:
            unshard(range(layer, min(layer + ahead, last) + 1), layer)
            rank.compute(loop.speed.forward_s[layer])
            if layer != last and not (layer == 0 and loop.config["tie-embeddings"]):
                gathers.pop(layer, None)
        for layer in reversed(loop.layers):
            unshard(range(layer, max(layer - ahead, 1) - 1, -1), layer if layer else None)
            rank.compute(loop.speed.backward_s[layer])
            gathers.pop(layer, None)
            if way.when == "each" or (way.when == "last" and number == loop.microbatches - 1):
                send(layer)
    for layer in loop.layers if way.when == "after" else ():
        send(layer)
    rank.wait(*reductions)


def single(loop):
    """Step 0, which sends nothing."""
    accumulate(loop, ALONE)
    loop.update(loop.numel)
    loop.rank.compute(loop.numel * loop.speed.norm_s + loop.speed.rest_s)
    check_sent(loop.facts, [loop.rank.sent])
    return loop.rank.now


def data_parallel(loop):
    way, rank, norm_s = WAYS[loop.facts["step"]], loop.rank, loop.speed.norm_s
    num_owned = loop.numel / loop.ranks if way.is_sharded else loop.numel
    loop.sum_of_numbers(1)
    accumulate(loop, way)
    if way.is_sharded:
        loop.sharded_norm()
    loop.update(num_owned)
    if way.unshards:  # the norm of the parameters is one of slices
        rank.compute(num_owned * norm_s)
        loop.sharded_norm()
    elif way.is_sharded:
        rank.wait(*[loop.start("all_gather", numel, loop.param_bytes) for numel in reversed(loop.units)])
    rank.compute((0 if way.unshards else loop.numel) * norm_s + loop.speed.rest_s)
    loop.sum_of_numbers(2)
    check_sent(loop.facts, [rank.sent])
    return rank.now


# ---- the others -------------------------------------------------------------------------------------------------------


def run_flush(loop, stages, schedule):
    """Each stage computes in the order of its plan, as soon as what it needs has arrived."""
    chunks, arrivals = schedule["chunks"], {}
    size = loop.config["micro-batch-size"] * loop.config["context"] * loop.config["channels"] * loop.param_bytes
    kinds = {"F": (loop.speed.forward_s, 1), "B": (loop.speed.backward_s, 1), "I": (loop.speed.backward_s, 0.5), "W": (loop.speed.backward_s, 0.5)}

    def run(rank, actions):
        """Yields where it cannot go on."""
        for action in actions:
            kind, (chunk, microbatch) = action[0], map(int, action[1:].split("."))
            seconds, share = kinds[kind]
            what, next_chunk = ("F", chunk + 1) if kind == "F" else ("B", chunk - 1)
            needed = (what, 2 * chunk - next_chunk, microbatch)
            if kind != "W" and 0 <= needed[1] < len(chunks):
                while needed not in arrivals:
                    yield
                rank.wait(arrivals[needed])
            rank.compute(share * sum(seconds[layer] for layer in chunks[chunk]) / loop.speed.sharing)
            if kind != "W" and 0 <= next_chunk < len(chunks):
                arrivals[what, chunk, microbatch] = rank.start("send", Sent(1, messages(1, size), size))

    running = [run(stage.rank, actions) for stage, actions in zip(stages, schedule["stages"])]
    before = -1
    while len(arrivals) > before:  # else nobody can go on
        before, running = len(arrivals), [stage for stage in running if next(stage, "the end") is None]


def all_of(stages, places, ranks, numel, size):
    """An all-reduce of so many ranks, in which the stages have these places: the slowest decides."""
    done = [stage.rank.start("all_reduce", all_reduce(numel, size, ranks, place)) for stage, place in zip(stages, places)]
    for stage in stages:
        stage.rank.wait(*done)


def pipeline(loop):
    schedule, num_stages = loop.facts["schedule"], loop.facts["stages"]
    chunks, places = schedule["chunks"], range(num_stages)
    layers = [sum(chunks[place::num_stages], []) for place in places]
    stages = [Loop(loop.facts, loop.speed, loop.link, loop.ranks // num_stages, layers[place]) for place in places]
    tied = [stages[0], stages[-1]] if loop.config["tie-embeddings"] and num_stages > 1 else []
    if tied:  # the last stage has a copy, the last tensor of the head's unit
        stages[-1].tensors.append((loop.layers[-1], *loop.tensors[0][1:]))
        stages[-1].numel += loop.tensors[0][2]
    norm_blocks = sum(ceil_div(sum(padded for at, _, padded in loop.tensors if at == layer), NORM_BLOCK) for layer in loop.layers)
    for stage in stages:
        stage.sum_of_numbers(1)
    per_flush = 1 + max(int(action.split(".")[1]) for action in schedule["stages"][0])
    for _ in range(loop.microbatches // per_flush):
        run_flush(loop, stages, schedule)
    for stage in stages:
        stage.rank.wait(*[stage.start("all_reduce", numel, loop.grad_bytes) for _, numel in stage.pieces("buckets")])
    if tied:
        all_of(tied, range(2), 2, loop.tensors[0][1], loop.grad_bytes)
    all_of(stages, places, num_stages, norm_blocks, 8)
    for stage in stages:
        stage.rank.compute(stage.numel * (2 * loop.speed.norm_s + loop.speed.update_s) / loop.speed.sharing)
    all_of(stages, places, num_stages, norm_blocks, 8)
    all_of(stages, places, loop.ranks, 2, 8)
    check_sent(loop.facts, [stage.rank.sent for stage in stages])
    loop.rank = max((stage.rank for stage in stages), key=lambda rank: rank.computed)
    at_work = loop.speed.sharing * sum(stage.rank.computed for stage in stages) / num_stages  # no core is idle in a bubble
    return max(stages[0].rank.now, at_work) + loop.speed.rest_s


def diloco(loop):
    """Per inner step, on average of whole rounds. With --sync-delay the link works while training goes on."""
    sends = loop.facts["ranks"][0]["sends"]
    length = loop.config["sync-every"] / loop.config["fragments"]
    total = Sent(*(sum(op[name] for op in sends.values()) for name in ("calls", "messages", "bytes_sent")))
    in_steps = loop.facts["ranks"][0]["in_steps"]
    speed = loop.speed
    accumulate(loop, ALONE)
    loop.update(loop.numel)
    loop.rank.compute(loop.numel * speed.norm_s + speed.rest_s)
    copied_s = (total.calls * speed.call_s + total.messages * speed.message_s + total.num_bytes * speed.byte_s) / in_steps
    outer_s = speed.update_s * loop.numel / loop.config["sync-every"]
    hidden_s = loop.config["sync-delay"] * loop.rank.now / length
    return loop.rank.now + copied_s + outer_s + max(0.0, loop.rank.link_s(total) / in_steps - hidden_s)


LOOPS = {**dict.fromkeys(WAYS, data_parallel), "step8_pipeline_ga": pipeline, "step9_diloco": diloco}


class WrongPlan(Exception):
    """A loop here sends something else than the step does."""


def check_sent(facts, sent_by_stage):
    for rank, sent in zip(facts["ranks"], sent_by_stage, strict=True):
        wanted = {kind: Sent(op["calls"], op["messages"], op["bytes_sent"]) for kind, op in rank["sends"].items() if kind != "recv"}
        if sent != wanted:
            raise WrongPlan(f"{facts['step']}: the planner's loop sends {sent}, the step's cost card says {wanted}")


class Estimate(NamedTuple):
    step_s: float
    waiting_s: float  # of it: for the link, for other ranks


def estimate(facts, speed, link):
    loop = Loop(facts, speed, link, facts["world_size"], range(len(facts["layers"])))
    seconds = (single if facts["step"] == STEP0 else LOOPS[facts["step"]])(loop)
    return Estimate(seconds, max(0.0, seconds - loop.rank.computed))
