"""How long an optimizer step takes, by ladder_clock: common/train/clock.hpp."""

import json
import subprocess
from typing import NamedTuple

Link = tuple  # (µs per round of messages, 10^9 bits per second), or None: infinitely fast


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


class Estimate(NamedTuple):
    step_s: float
    waiting_s: float  # of it: for links, for other ranks


class Clock:
    """The program of a build folder, which answers as long as this lives."""

    def __init__(self, build):
        program = build / "common/train/ladder_clock"
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def estimate(self, facts, speed: Speed, links: tuple[Link | None, Link | None]) -> Estimate:
        """`facts`: what --dry-run N --json says; `links`: to ranks of the same machine, and to
        others."""
        request = {"facts": facts, "speed": speed._asdict(), "links": links}
        return Estimate(**self.ask(request))

    def said_speed(self, facts, tflops: float, gbytes: float) -> Speed:
        """Of a rank that sustains so many 10^12 operations, and so many 10^9 bytes of memory, per
        second."""
        return Speed(**self.ask({"facts": facts, "said": [tflops, gbytes]}))

    def ask(self, request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise WrongPlan(answer["error"])
        return answer
