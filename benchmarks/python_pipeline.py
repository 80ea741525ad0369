"""The opponent of pipeline_vs_python.py: the model of python_trainer.py in stages, one per process, run by
torch.distributed.pipelining over gloo.

    python benchmarks/python_pipeline.py --parallel gpipe|1f1b --num-microbatches N --blocks 3,3
                                         and the options of python_trainer.py, but for --kind

--blocks tells how many blocks each stage has; the embedding is on the first stage, the head on the last one. It
starts from the same checkpoint as the course's trainer, reads the same tokens, clips by the norm of the whole gradient, and
so has the same losses. RANK, WORLD_SIZE and the rest come from the environment, as torchrun sets them.
Prints one line of JSON: num_parameters, step_seconds (a list), losses (a list; the same on every rank).
"""

import json
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from python_trainer import Gpt, load, make_parser, parameter_groups, read_batch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Stage(nn.Module):
    """Some of a model's layers: tokens or activations [B, T, C] -> activations or logits [B, T, V]."""

    def __init__(self, model, blocks, is_first, is_last):
        super().__init__()
        self.blocks = nn.ModuleList(model.blocks[i] for i in blocks)
        self.wte, self.wpe = (model.wte, model.wpe) if is_first else (None, None)
        self.ln_f, self.lm_head = (model.ln_f, model.lm_head) if is_last else (None, None)

    def forward(self, x):
        if self.wte is not None:
            x = Gpt.embed(self, x)
        for block in self.blocks:
            x = block(x)
        return x if self.lm_head is None else Gpt.logits(self, x)


def clip(parameters, largest, loss):
    """As clip_grad_norm_ does, by the norm over all stages. Returns the loss of the last stage, which others pass as 0."""
    squares = sum(norm.double() ** 2 for norm in torch._foreach_norm([p.grad for p in parameters]))
    sums = torch.stack([squares, torch.tensor(loss, dtype=torch.float64)])
    dist.all_reduce(sums)
    factor = largest / (sums[0].sqrt().item() + 1e-6)
    if factor < 1:
        torch._foreach_mul_([p.grad for p in parameters], factor)
    return sums[1].item()


def main():
    parser = make_parser(list(SCHEDULES))
    parser.add_argument("--num-microbatches", type=int, required=True)
    parser.add_argument("--blocks", type=lambda text: [int(count) for count in text.split(",")], required=True)
    arguments = parser.parse_args()
    shape, options = arguments.shape, arguments.options
    torch.set_num_threads(arguments.threads)
    dist.init_process_group("gloo")
    rank, num_stages = dist.get_rank(), dist.get_world_size()
    is_first, is_last = rank == 0, rank == num_stages - 1

    model = Gpt(**shape)
    load(model, arguments.checkpoint)
    num_parameters = sum(p.numel() for p in model.parameters())
    begin = sum(arguments.blocks[:rank])
    module = Stage(model, range(begin, begin + arguments.blocks[rank]), is_first, is_last)
    del model
    parameters = list(module.parameters())
    adamw = {"lr": options["lr"], "betas": options["betas"], "eps": options["eps"], "fused": True}
    optimizer = torch.optim.AdamW(parameter_groups(list(module.parameters()), options["weight_decay"]), **adamw)

    rows = options["rows"] * arguments.num_microbatches
    num_targets = rows * shape["context"]

    def loss_fn(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_targets

    stage = PipelineStage(module, rank, num_stages, torch.device("cpu"))
    schedule = SCHEDULES[arguments.parallel](
        stage, arguments.num_microbatches, loss_fn, scale_grads=False  # the loss is divided already
    )
    data = np.memmap(arguments.data, dtype="<u2", mode="r")

    step_seconds, losses = [], []
    for step in range(arguments.num_steps):
        start = time.perf_counter()
        tokens, targets = read_batch(data, step, rows, shape["context"], 0, 1)
        parts = []
        schedule.step(
            *([tokens] if is_first else []),
            **({"target": targets, "losses": parts} if is_last else {}),
            return_outputs=False,
        )
        losses.append(clip(parameters, options["clip_norm"], sum(part.item() for part in parts)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step_seconds.append(time.perf_counter() - start)
    print(json.dumps({"num_parameters": num_parameters, "step_seconds": step_seconds, "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
