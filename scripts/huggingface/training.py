"""Optimizer steps on a folder's model, by our trainers and by a loop in PyTorch."""

import json

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from huggingface.models import BY_NAME, CONTEXT, FAMILIES, VOCABULARY, read_model, write_model
from huggingface.runs import (
    Result,
    command,
    largest_difference,
    start,
    trainer,
    windows,
    write_tokens,
)

STEPS, ROWS = 20, 4  # rows of an optimizer step, on all ranks together
TOLERANCE = 1e-4
BF16_LOSS_TOLERANCE, BF16_CHANGE_TOLERANCE = 3e-2, 0.1
# With the usual eps, 1e-8, AdamW makes whole steps of what is nothing but rounding: the gradient of
# GPT-2's key biases, for one, is 0 on paper.
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-5}
WEIGHT_DECAY, CLIP_NORM = 0.1, 1.0
TRAINED = [
    *(family.name for family in FAMILIES),
    "Llama, a key for each query",
    "GPT-2, exact GELU",
]
TRAINERS = {
    "fp32": [
        "step0_single_gpu",
        "step5_zero1",
        "step7_zero3",
        "step8_pipeline_ga",
        "tensor_parallel",
        "tensor_parallel on 4 ranks",
    ],
    "bf16": ["step0_single_gpu"],
}
# How a step gets its rows: rows of a microbatch, microbatches, and ranks to share them.
TWO_RANKS = {"transport": "threads", "ranks": 2}
SHARES = {
    "step0_single_gpu": {"micro_batch_size": 2, "num_microbatches": 2},
    "step5_zero1": {"micro_batch_size": 2, **TWO_RANKS},
    "step7_zero3": {"micro_batch_size": 1, "num_microbatches": 2, **TWO_RANKS},
    "step8_pipeline_ga": {
        "micro_batch_size": 1,
        "num_microbatches": 4,
        **TWO_RANKS,
        "pipeline_stages": 2,
    },
    "tensor_parallel": {
        "micro_batch_size": 2,
        "num_microbatches": 2,
        **TWO_RANKS,
        "tensor_ranks": 2,
    },
    "tensor_parallel on 4 ranks": {
        "micro_batch_size": 4,
        "transport": "threads",
        "ranks": 4,
        "tensor_ranks": 4,
    },
}
# Planted into the loop: what it is called with.
MISTAKES = [
    ("norms and biases decay, too", {"decays": lambda p: True}),
    ("nothing decays", {"decays": lambda p: False}),
    ("no clipping", {"clip_norm": 1e9}),
    ("another beta2", {"betas": (0.9, 0.952)}),
    ("another eps", {"eps": 1.2e-5}),
]


def check(folder, has_mistakes):
    data = folder / "tokens_to_train_on.bin"
    tokens = write_tokens(data, STEPS * ROWS * CONTEXT + 1, VOCABULARY, seed=2)
    runs = [
        (name, precision, step)
        for name in TRAINED
        for precision, steps in TRAINERS.items()
        for step in steps
        if name != "OLMo 2" or "tensor" not in step  # it cannot be cut into parts
    ]
    outs = [
        folder / "_".join([*step.split(), precision, BY_NAME[name].folder])
        for name, precision, step in runs
    ]
    start(
        [
            train_command(step, precision, write_model(BY_NAME[name], folder), data, out)
            for (name, precision, step), out in zip(runs, outs)
        ]
    )
    found = {run: read_run(out) for run, out in zip(runs, outs)}
    for name in TRAINED:
        for precision in TRAINERS:
            theirs = train(folder / BY_NAME[name].folder, tokens, precision)
            for run in runs:
                if run[:2] == (name, precision):
                    yield from (compare if precision == "fp32" else compare_in_bf16)(
                        ", ".join(run), found[run], theirs
                    )
    if has_mistakes:
        for mistake, change in MISTAKES:
            theirs = train(folder / BY_NAME["GPT-2"].folder, tokens, **change)
            results = compare("GPT-2", found["GPT-2", "fp32", "step0_single_gpu"], theirs)
            worst = max(results, key=lambda result: result.difference)
            yield worst._replace(mistake=mistake)


def train_command(step, precision, model, data, out):
    return command(
        trainer(step.split()[0]),
        init_from=model,
        data=data,
        order="sequential",
        vocab_size=VOCABULARY,
        context=CONTEXT,
        steps=STEPS,
        out=out,
        lr=ADAMW["lr"],
        lr_schedule="constant",
        beta1=ADAMW["betas"][0],
        beta2=ADAMW["betas"][1],
        eps=ADAMW["eps"],
        weight_decay=WEIGHT_DECAY,
        clip_norm=CLIP_NORM,
        precision=precision,
        **SHARES[step],
    )


def read_run(out):
    """A run's losses and gradient norms, [STEPS, 2], and its final parameters."""
    (checkpoint,) = (out / "checkpoints").glob("step_*")
    return curves_of(out), load_file(checkpoint / "model.safetensors")


def curves_of(out):
    report = json.loads((out / "report.json").read_text())
    return torch.tensor([report["losses"], report["grad_norms"]]).t()


def train(
    folder, tokens, precision="fp32", decays=lambda p: p.dim() > 1, clip_norm=CLIP_NORM, **changes
):
    """What read_run() gives, of the loop in PyTorch, and the parameters that it starts from. The
    optimizer has masters: fp32 copies of the parameters."""
    model, losses = read_model(folder, torch.bfloat16 if precision == "bf16" else torch.float32), []
    masters = [p.detach().float().clone() for p in model.parameters()]
    at_start = parameters_of(model, [p.clone() for p in masters])
    groups = [
        {
            "params": [p for p in masters if decays(p) == wanted],
            "weight_decay": WEIGHT_DECAY if wanted else 0,
        }
        for wanted in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, **{**ADAMW, **changes})
    for step in range(STEPS):
        batch, targets = windows(tokens, CONTEXT, ROWS, first=step * ROWS)
        loss = F.cross_entropy(model(batch).logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        for p, master in zip(model.parameters(), masters):
            master.grad, p.grad = p.grad.float(), None
        norm = torch.nn.utils.clip_grad_norm_(masters, clip_norm)
        optimizer.step()
        for p, master in zip(model.parameters(), masters):
            p.data.copy_(master)
        losses.append([loss.item(), norm.item()])
    return torch.tensor(losses), parameters_of(model, masters), at_start


def parameters_of(model, masters):
    """Parameters by our names; of the positions those that we have kept."""
    names = (
        name.removeprefix(f"{model.base_model_prefix}.") for name, _ in model.named_parameters()
    )
    named = dict(zip(names, masters))
    return {name: p[:CONTEXT] if name == "wpe.weight" else p for name, p in named.items()}


def compare(name, ours, theirs):
    for i, what in enumerate(("losses", "gradient norms")):
        difference = largest_difference(ours[0][:, i], theirs[0][:, i])
        yield Result(name, f"{STEPS} {what}", difference, TOLERANCE)
    yield Result(name, "parameters after them", largest_difference(ours[1], theirs[1]), TOLERANCE)


def compare_in_bf16(name, ours, theirs):
    """AdamW's first steps have the same size whatever the gradient's: a rounding that changes a
    sign is seen as two steps. So of the parameters the whole change is compared."""
    yield Result(
        name,
        f"{STEPS} losses",
        largest_difference(ours[0][:, 0], theirs[0][:, 0]),
        BF16_LOSS_TOLERANCE,
    )
    at_start = flat(theirs[2])
    change = flat(theirs[1]) - at_start
    difference = (flat(ours[1]) - at_start - change).norm() / change.norm()
    yield Result(
        name,
        "changes of all parameters, relative to their norm,",
        difference.item(),
        BF16_CHANGE_TOLERANCE,
    )


def flat(parameters):
    return torch.cat([parameters[name].flatten() for name in sorted(parameters)])
