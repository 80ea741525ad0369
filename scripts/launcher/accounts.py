"""What a report says that a rank held and sent, beside theory."""

import math

HELD = ("parameters", "gradients", "optimizer", "communication")
SCRATCH = "widened for the update"


def bytes_sent(rank):
    """The bytes sent with all operations; a report's `traffic` has an entry for each rank."""
    return sum(operation["bytes_sent"] for operation in rank.values())


def memory_faults(memory, theory, config, kinds=HELD):
    """A text for each number of bytes of a rank that is not what theory says, and for what is no model state."""
    allowed = others_theory(config)
    faults = [f"holds {memory[kind]} bytes of {kind}, theory says {theory[kind]}" for kind in kinds if memory[kind] != theory[kind]]
    return faults + [f"holds {size} bytes of {other}, theory says at most {allowed.get(other, 0)}"
                     for other, size in memory["other_by_name"].items() if size > allowed.get(other, 0)]  # fmt: skip


def others_theory(config):
    """The most bytes by name. The optimizer computes in fp32: what has neither 4 bytes nor a master passes through 4 MiB, of
    any model. Llama's table has a cosine and a sine, in fp32, for each position and pair of a head's channels; an objective may
    have a frozen model with a table of its own. The oracle's sum over the ranks that it plays is no state of theirs."""
    is_narrow = [config["grad-dtype"] != "fp32", config["precision"] != "fp32" and config["masters"] != "fp32"]
    return {
        "simulated ranks": math.inf,
        SCRATCH: 4 * 2**20 * sum(is_narrow),
        "rotary positions": 4 * config["context"] * config["channels"] // config["heads"] * (2 if "objective" in config else 1),
    }
