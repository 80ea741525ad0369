"""How long an optimizer step takes: what a trainer says that it sends, on a clock instead of a
machine.

A trainer's --dry-run hands out the sends of a rank: each begins in a phase of the step, perhaps at
a layer, and the rank waits for it at once or later. Rank is one rank's step in the order of these
phases. All replicas do the same at the same time, so one is enough; of a pipeline, all its stages
run, each in the order of its schedule.
"""

from collections import defaultdict
from typing import NamedTuple

PASSES = {"F": ("forward", 1), "B": ("backward", 1), "I": ("backward", 0.5), "W": ("backward", 0.5)}


class Link(NamedTuple):
    """As --link paces it: each round of messages takes latency_s, each byte byte_s."""

    latency_s: float = 0
    byte_s: float = 0

    def seconds(self, use):
        return use["rounds"] * self.latency_s + use["bytes"] * self.byte_s


class Links(NamedTuple):
    """Of a rank: to ranks on the same machine, and to others."""

    inside: Link = Link()
    outside: Link = Link()


def link_of(pair):
    """Of what --link says; nothing is infinitely fast."""
    return Link(pair[0] * 1e-6, 8e-9 / pair[1]) if pair else Link()


class WrongPlan(Exception):
    """By what a step says that it sends, it never ends."""


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


class Rank:
    """A processor that computes, and two links, each of which serves one operation after the other
    (LinkQueues in common/comm/link.hpp).

    Its generators carry out a step, and yield where another rank must come first. `arrivals`, of
    all ranks: when what they have sent will have arrived."""

    def __init__(self, number, facts, speed, links, arrivals):
        self.facts = facts["ranks"][number]
        self.here = [rank["rank"] for rank in facts["ranks"]]  # one replica's, of the world
        self.speed, self.links, self.arrivals, self.microbatches = (
            speed,
            links,
            arrivals,
            facts["microbatches"],
        )
        self.sharing = speed.sharing if len(self.here) > 1 else 1
        self.owners = facts.get("tensor_ranks", 1)  # of a layer's parts
        self.now = self.phase_done = self.computed = self.weights_s = 0.0
        self.link_free = dict.fromkeys(Links._fields, 0.0)
        self.latest, self.waited_by = defaultdict(float), {}
        self.sends = defaultdict(list)
        for send in self.facts["plan"]:
            if send["times"] >= self.facts["in_steps"]:  # others are in seconds_between_steps()
                self.sends[send["phase"], send["layer"]].append(send)

    def compute(self, seconds):
        self.now += seconds / self.sharing
        self.computed += seconds / self.sharing

    def wait(self, done):
        self.now = max(self.now, done)

    def costs(self, send):
        """Of one time: seconds of each link, and of the processor, which copies the messages."""
        messages, num_bytes = send["messages"], send["bytes_sent"]
        copy_s = self.speed.call_s + messages * self.speed.message_s + num_bytes * self.speed.byte_s
        link_s = {name: getattr(self.links, name).seconds(send[name]) for name in Links._fields}
        return link_s, copy_s if messages else 0.0

    def start(self, send):
        """Returns when it will be done: first inside, then outside."""
        link_s, copy_s = self.costs(send)
        done = self.now
        hidden = self.weights_s if send["wait"] == "for_weights" else 0.0
        for name, seconds in link_s.items():
            if send[name]["rounds"]:
                left = max(0.0, seconds - hidden)
                hidden -= seconds - left
                done = self.link_free[name] = max(done, self.link_free[name]) + left
        self.now += copy_s
        return max(self.now, done)

    def carry_out(self, send, microbatch=0):
        """Starts it, and waits if that is said."""
        operation, wait = send["operation"], send["wait"]
        way = send["phase"].split("_")[-1]
        if operation == "recv" and way not in ("forward", "backward"):  # all send equally much
            self.wait(self.latest["send"])
            return
        if operation == "recv":
            while (way, send["layer"], microbatch) not in self.arrivals:
                yield
            self.wait(self.arrivals[way, send["layer"], microbatch])
            return
        if wait == "for_next":
            self.wait(self.latest[operation])
        done = self.latest[operation] = self.start(send)
        if operation == "send":
            self.arrivals[way, send["layer"] + (1 if way == "forward" else -1), microbatch] = done
        elif wait == "for_layer":
            self.waited_by["forward" if way == "start" else way, send["needed_by"]] = done
        elif wait in ("at_once", "for_weights"):
            yield from self.join(send, done)
        else:
            self.phase_done = max(self.phase_done, done)

    def join(self, send, done):
        """Waits, also for the others of the group that are here: the slowest decides."""
        first, stride, size, neighbors = send["group"]
        group = [first + i // neighbors * stride + i % neighbors for i in range(size) if size > 1]
        others = [rank for rank in self.here if rank in group]
        keys = [(send["phase"], first, stride, size, send["elements"], rank) for rank in others]
        if len(others) > 1:
            self.arrivals[keys[others.index(self.facts["rank"])]] = done
            while not all(key in self.arrivals for key in keys):
                yield
            done = max(self.arrivals[key] for key in keys)
        self.wait(done)

    def phase(self, name):
        for send in self.sends[name, 0]:
            for _ in range(send["times"] // self.facts["in_steps"]):
                yield from self.carry_out(send)
        self.wait(self.phase_done)

    def layer(self, way, layer, seconds, microbatch, weights_s=0.0):
        """Of one microbatch, with what is sent before and after it. Each sum that travels while
        gradients of weights are computed has its share of weights_s."""
        behind = [s for s in self.sends[f"after_{way}", layer] if s["wait"] == "for_weights"]
        self.weights_s = weights_s / self.sharing / max(1, len(behind))
        for when in ("before", "after"):
            for send in self.sends[f"{when}_{way}", layer]:
                if send["times"] > self.facts["in_steps"] or microbatch == self.microbatches - 1:
                    yield from self.carry_out(send, microbatch)
            if when == "before":
                self.wait(self.waited_by.pop((way, layer), 0))
                self.compute(seconds)

    def step(self, actions, chunks):
        """`actions` as in a pipeline's schedule: ("F", 0, 2) is forward of chunk 0 and microbatch
        2."""
        seconds = {
            way: [whole / self.owners for whole in layers]
            for way, layers in (
                ("forward", self.speed.forward_s),
                ("backward", self.speed.backward_s),
            )
        }
        yield from self.phase("start")
        for kind, chunk, microbatch in actions:
            way, share = PASSES[kind]
            for layer in chunks[chunk] if way == "forward" else reversed(chunks[chunk]):
                if kind == "W":  # sends nothing
                    self.compute(share * seconds[way][layer])
                else:
                    part_s = share * seconds[way][layer]
                    weights_s = part_s / 2 if kind == "B" else 0.0
                    yield from self.layer(way, layer, part_s, microbatch, weights_s)
        self.wait(self.phase_done)
        yield from self.phase("gradients")
        self.compute(self.facts["updated"] * self.speed.update_s)
        self.compute(self.facts["normed"] * self.speed.norm_s)
        yield from self.phase("updated")
        yield from self.phase("end")

    def seconds_between_steps(self, step_s):
        """On top of each step, on average, for what is not sent in each of them. The links have
        some steps to carry it."""
        seconds = pending = 0.0
        for send in self.facts["plan"]:
            if (share := send["times"] / self.facts["in_steps"]) >= 1:
                continue
            link_s, copy_s = self.costs(send)
            seconds, pending = seconds + share * copy_s, pending + share * sum(link_s.values())
            if send["wait"] in ("at_once", "for_steps"):
                seconds += max(0.0, pending - share * send["needed_by"] * step_s)
                pending = 0.0
        return seconds


class Estimate(NamedTuple):
    step_s: float
    waiting_s: float  # of it: for links, for other ranks


def orders_of(facts):
    """What each rank computes, and which layers a chunk has. A schedule is one flush, of which a
    step may have several."""
    if not facts["schedule"]:
        each = [(way, 0, m) for m in range(facts["microbatches"]) for way in "FB"]
        return [each for _ in facts["ranks"]], [range(len(facts["layers"]))]
    flush = [
        [(action[0], *map(int, action[1:].split("."))) for action in stage]
        for stage in facts["schedule"]["stages"]
    ]
    length = 1 + max(microbatch for _, _, microbatch in flush[0])
    starts = range(0, facts["microbatches"], length)
    shifted = [
        [(kind, chunk, m + start) for start in starts for kind, chunk, m in stage]
        for stage in flush
    ]
    return shifted, facts["schedule"]["chunks"]


def estimate(facts, speed, links):
    arrivals, (orders, chunks) = {}, orders_of(facts)
    ranks = [Rank(number, facts, speed, links, arrivals) for number in range(len(orders))]
    running, before = [rank.step(order, chunks) for rank, order in zip(ranks, orders)], -1
    while running and len(arrivals) > before:  # each goes on as far as it can
        before, running = len(arrivals), [step for step in running if next(step, "the end") is None]
    if running:
        raise WrongPlan(f"{facts['step']}: by its plan, {len(running)} rank(s) wait for ever")
    slowest = max(ranks, key=lambda rank: rank.computed)
    at_work = (
        slowest.sharing * sum(rank.computed for rank in ranks) / len(ranks)
    )  # no core is idle in a bubble
    step_s = max(ranks[0].now, at_work) + speed.rest_s
    seconds = step_s + ranks[0].seconds_between_steps(step_s)
    return Estimate(seconds, max(0.0, seconds - slowest.computed - speed.rest_s))
