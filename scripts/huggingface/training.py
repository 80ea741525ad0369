"""Optimizer steps on a folder's model, by our trainers and by a loop in PyTorch."""

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from huggingface.models import BY_NAME, CONTEXT, VOCABULARY, read_model, write_model
from huggingface.runs import Result, command, largest_difference, read_report, start, trainer, windows, write_tokens

STEPS, ROWS = 20, 4  # rows of an optimizer step, on all ranks together
TOLERANCE = 1e-4
# With the usual eps, 1e-8, AdamW makes whole steps of what is nothing but rounding: the gradient of GPT-2's key biases, for
# one, is 0 on paper.
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-5}
WEIGHT_DECAY, CLIP_NORM = 0.1, 1.0
TRAINED = ["GPT-2", "Llama", "Llama, a key for each query"]
# How a step gets its rows: rows of a microbatch, microbatches, and what else it needs.
TRAINERS = {
    "step0_single_gpu": {"micro_batch_size": 2, "num_microbatches": 2},
    "step5_zero1": {"micro_batch_size": 2, "transport": "threads", "ranks": 2},
    "step7_zero3": {"micro_batch_size": 1, "num_microbatches": 2, "transport": "threads", "ranks": 2},
    "step8_pipeline_ga": {"micro_batch_size": 1, "num_microbatches": 4, "transport": "threads", "ranks": 2, "pipeline_stages": 2},
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
    runs = [(name, step, folder / f"{step}_{BY_NAME[name].folder}") for name in TRAINED for step in TRAINERS]
    start([train_command(step, write_model(BY_NAME[name], folder), data, out) for name, step, out in runs])
    for name in TRAINED:
        model = folder / BY_NAME[name].folder
        theirs = train(model, tokens)
        for each, step, out in runs:
            if each == name:
                yield from compare(f"{name}, {step}", read_run(out), theirs)
    if has_mistakes:
        ours = read_run(folder / f"step0_single_gpu_{BY_NAME['GPT-2'].folder}")
        for mistake, change in MISTAKES:
            losses, parameters = compare("GPT-2", ours, train(folder / BY_NAME["GPT-2"].folder, tokens, **change))
            yield max(losses, parameters, key=lambda result: result.difference)._replace(mistake=mistake)


def train_command(step, model, data, out):
    return command(
        trainer(step), init_from=model, data=data, order="sequential", context=CONTEXT, steps=STEPS, out=out,
        lr=ADAMW["lr"], lr_schedule="constant", beta1=ADAMW["betas"][0], beta2=ADAMW["betas"][1], eps=ADAMW["eps"],
        weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM, **TRAINERS[step],
    )  # fmt: skip


def read_run(out):
    """Its losses, [STEPS], and its final parameters."""
    (checkpoint,) = (out / "checkpoints").glob(f"step_{STEPS:06}")
    return torch.tensor(read_report(out)["losses"]), load_file(checkpoint / "model.safetensors")


def train(folder, tokens, decays=lambda p: p.dim() > 1, clip_norm=CLIP_NORM, **changes):
    """The same as read_run(), of the loop in PyTorch."""
    model, losses = read_model(folder), []
    groups = [{"params": [p for p in model.parameters() if decays(p) == wanted], "weight_decay": WEIGHT_DECAY if wanted else 0}
              for wanted in (True, False)]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, **{**ADAMW, **changes})
    for step in range(STEPS):
        batch, targets = windows(tokens, CONTEXT, ROWS, first=step * ROWS)
        loss = F.cross_entropy(model(batch).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses), {without_prefix(name): p.detach() for name, p in model.named_parameters()}


def without_prefix(name):
    return name.removeprefix("transformer.").removeprefix("model.")


def compare(name, ours, theirs):
    yield Result(name, f"{STEPS} losses", largest_difference(ours[0], theirs[0]), TOLERANCE)
    yield Result(name, "parameters after them", largest_difference(ours[1], theirs[1]), TOLERANCE)
