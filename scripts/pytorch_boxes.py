"""One rank of check_pytorch_boxes: runs boxes of PyTorch from READMEs, one after another, over
gloo.

    RANK=R WORLD_SIZE=N MASTER_ADDR=HOST MASTER_PORT=PORT pytorch_boxes.py FILE

FILE says which, and what they start from. Prints one line of JSON, a list with an entry for each
box: its steps, which are pairs of the summed loss and the number of targets of this rank; or a text
that says what is wrong.
"""

import json
import os
import sys
import traceback
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import spmd_types as spmd  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from python_trainer import Block, Gpt, load  # noqa: E402
from spmd_types.checker import typecheck  # noqa: E402
from torch import nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: E402
from torch.distributed.tensor import Partial, Replicate  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.nn.utils import parameters_to_vector, vector_to_parameters  # noqa: E402
from torch.optim import SGD, AdamW  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

IMPORTS = {
    each.__name__: each
    for each in (
        AdamW,
        ColwiseParallel,
        DataLoader,
        DistributedDataParallel,
        DistributedSampler,
        Partial,
        PipelineStage,
        Replicate,
        RowwiseParallel,
        SGD,
        Schedule1F1B,
        ZeroRedundancyOptimizer,
        checkpoint,
        fully_shard,
        init_device_mesh,
        loss_parallel,
        nullcontext,
        parallelize_module,
        parameters_to_vector,
        partial,
        typecheck,
        vector_to_parameters,
    )
} | {"torch": torch, "dist": dist, "spmd": spmd, "F": F}
LIMIT_SECONDS = 300  # that a rank waits for another; a box takes less than one
END_OF_TEXT, PADDING, IGNORED = 256, 257, -100
Gpt.blocks = property(lambda self: self.h)  # by the name that the boxes use


def read_documents(path, context):
    """[(tokens, targets)], each [T] int64: what the trainers make of a .jsonl file with --rows
    documents."""
    rows = []
    for line in Path(path).read_text().splitlines():
        text = [*json.loads(line)["answer"].encode(), END_OF_TEXT][: context + 1]
        padding = context + 1 - len(text)
        rows.append(
            (
                torch.tensor(text[:-1] + padding * [PADDING]),
                torch.tensor(text[1:] + padding * [IGNORED]),
            )
        )
    return rows


def stacked(rows):
    """The rows as tokens and targets, [B, T]."""
    return tuple(map(torch.stack, zip(*rows)))


def count(targets):
    return (targets != IGNORED).sum()


class BlockByHeads(Block):
    """The same block with a matrix each for queries, keys and values, and as many heads as these
    have, so that a rank can have some of each."""

    @staticmethod
    def split(block):
        block.__class__, joint = BlockByHeads, block.attn.pop("c_attn")
        weights, biases = joint.weight.chunk(3), joint.bias.chunk(3)
        block.head_channels = joint.in_features // block.heads
        for name, weight, bias in zip("qkv", weights, biases):
            block.attn[name] = nn.Linear(*weight.shape)
            block.attn[name].load_state_dict({"weight": weight, "bias": bias})

    def forward(self, x):
        B, T, _ = x.shape
        y = self.ln_1(x)
        q, k, v = (
            self.attn[name](y).view(B, T, -1, self.head_channels).transpose(1, 2) for name in "qkv"
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(mixed.transpose(1, 2).reshape(B, T, -1))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Box:
    """What the lines of a box rely on, on this rank, and a record of the losses that they compute."""

    def __init__(self, start, box, rank, world_size):
        self.start, self.box, self.rank, self.world_size = start, box, rank, world_size
        self.steps = []
        self.kept = {}  # by a step's forward for its backward: address -> bytes of activations
        self.kept_bytes = 0
        self.dataset = read_documents(box["data"], start["shape"]["context"])
        self.model = Gpt(**start["shape"], is_tied=box["is_tied"])
        load(self.model, box["checkpoint"])
        if box["root_sends"] and rank > 0:
            for p in self.model.parameters():
                torch.nn.init.zeros_(p)
        if box["by_heads"]:
            for block in self.model.blocks:
                BlockByHeads.split(block)
        self.optimizer = AdamW(self.model.parameters(), **start["adamw"])
        self.x = torch.arange(1000.0) * (rank + 1)

    def names(self):
        own = "rank world_size model optimizer dataset x loss_sum train train_step".split()
        names = {name: getattr(self, name) for name in own} | {
            name: self.start[name] for name in ("adamw", "num_epochs")
        }
        names |= {"batches": self.batches(), "rounds": self.rounds()}
        if self.box["has_stages"]:  # of one block each
            self.model.keep(
                slice(self.rank, self.rank + 1), self.rank == 0, self.rank == self.world_size - 1
            )
            names["layers"] = self.model
        return names

    def batch(self, step):
        """What the loop of a box takes apart, such as (tokens, targets, n)."""
        readers, m = self.box["readers"], self.box["num_microbatches"]
        num_rows = self.start["rows"] * m * readers
        rows = self.dataset[step * num_rows : (step + 1) * num_rows]
        tokens, targets = stacked(rows[self.rank % readers :: readers])
        found = {"tokens": tokens, "targets": targets, "n": count(stacked(rows)[1])}
        found["microbatches"] = list(zip(tokens.chunk(m), targets.chunk(m)))
        wanted = [found[name] for name in self.box["batch"].split(", ")]
        return tuple(wanted) if len(wanted) > 1 else wanted[0]

    def batches(self):
        for step in range(self.start["num_steps"]):
            self.steps.append([])
            self.kept.clear()
            yield self.batch(step)

    def rounds(self):
        """Lists of batches, whose steps train() counts."""
        steps, sync_every = range(self.start["num_steps"]), self.start["sync_every"]
        for first in steps[::sync_every]:
            yield [self.batch(step) for step in steps[first : first + sync_every]]

    def loss_sum(self, logits, targets):
        loss = F.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED
        )
        self.steps[-1].append((loss.item(), count(targets).item()))
        self.kept_bytes = sum(self.kept.values())
        return loss

    def keep(self, tensor):
        """For autograd, which is about to save this tensor."""
        is_state = any(tensor.data_ptr() == p.data_ptr() for p in self.model.parameters())
        if tensor.is_floating_point() and tensor.dim() > 0 and not is_state:
            self.kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    def sums(self):
        """The sums of each step. A PipelineStage calls once more in the first one, to learn shapes
        from made-up values."""
        calls = [
            step[-self.box["num_microbatches"] :] if self.box["has_stages"] else step
            for step in self.steps
        ]
        return [[sum(loss for loss, _ in step), sum(num for _, num in step)] for step in calls]

    def train(self, batches):
        """Step 0, on each of them."""
        for tokens, targets in batches:
            self.steps.append([])
            (self.loss_sum(self.model(tokens), targets) / count(targets)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def train_step(self, tokens, targets, n):
        """Step 3, on the rows that step 2's sampler must give this rank."""
        is_wrong = torch.tensor(
            not torch.equal(tokens, self.rows_of_step2(len(self.steps))), dtype=torch.int
        )
        dist.all_reduce(is_wrong)
        if is_wrong:
            raise AssertionError("these are not the rows that the course's sampler gives")
        self.steps.append([])
        (self.loss_sum(self.model(tokens), targets) / n).backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rows_of_step2(self, step):
        """The tokens: every N-th sample, without those left over; the last step of an epoch takes
        what there is."""
        share = self.dataset[: len(self.dataset) // self.world_size * self.world_size][
            self.rank :: self.world_size
        ]
        size = self.start["step2_rows"]
        first = step * size % (-(-len(share) // size) * size)
        return stacked(share[first : first + size])[0]


def run(start, box, rank, world_size, kept):
    """The box's steps; or what is wrong, if an assertion or a check of types says so on every
    rank."""
    this = Box(start, box, rank, world_size)
    names = IMPORTS | this.names()
    kept.append(names)
    ours = box["kept_bytes"]  # by our forward, or 0: they are not compared
    try:
        with saved_tensors_hooks(this.keep, lambda tensor: tensor) if ours else nullcontext():
            exec(compile(box["code"], box["name"], "exec"), names)
        if ours and this.kept_bytes != ours:
            return f"forward keeps {this.kept_bytes:,} bytes, ours {ours:,}"
        check_sum(names, world_size)
    except AssertionError as error:
        return f"an assertion has failed: {error}"
    except spmd.SpmdTypeError as error:
        return f"SpmdTypeError: {str(error).splitlines()[0]}"
    return this.sums()


def check_sum(names, world_size):
    """Checks the primer, whose box trains nothing: `total` is the sum over the ranks of what x
    was."""
    wanted = torch.arange(1000.0) * sum(range(1, world_size + 1))
    if "total" in names and not torch.equal(names["total"], wanted):
        raise AssertionError("total is not the sum of all ranks' x")


def main():
    start = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_SECONDS))
    rank = dist.get_rank()
    kept = []  # what the boxes leave behind, for a destructor may hang
    found = [
        run(start, box, rank, box["ranks"], kept) if rank < box["ranks"] else []
        for box in start["boxes"]
    ]
    print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    code = 1
    try:
        main()
        code = 0
    except Exception:
        traceback.print_exc()
    os._exit(code)  # python_trainer.py says why
