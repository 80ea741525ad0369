"""The logits of a folder, read by our code and by transformers."""

import torch

from huggingface.models import (
    BY_NAME,
    CONTEXT,
    FAMILIES,
    MISTAKES,
    MODELS,
    VOCABULARY,
    read_model,
    write_model,
    write_wrong,
)
from huggingface.runs import (
    LOGITS,
    Result,
    command,
    largest_difference,
    read_saved,
    start,
    windows,
    write_tokens,
)

ROWS = 2
TOLERANCE = 1e-5  # each of the two is within 2e-6 of exact logits
BF16_TOLERANCE = 0.1  # each of the two is within 0.05 of exact logits, which are as large as 3


def check(folder, has_mistakes):
    tokens = write_tokens(folder / "tokens.bin", ROWS * CONTEXT + 1, VOCABULARY)
    rows, _ = windows(tokens, CONTEXT, ROWS)
    cases = [(tiny, write_model(tiny, folder), "", "fp32") for tiny in MODELS]
    cases += [
        (tiny, folder / tiny.folder, "", "bf16")
        for tiny in (BY_NAME[family.name] for family in FAMILIES)
    ]
    if has_mistakes:
        cases += [
            (
                BY_NAME[name],
                write_wrong(folder / BY_NAME[name].folder, mistake, change),
                mistake,
                "fp32",
            )
            for name, mistake, change in MISTAKES
        ]
    outs = [folder / f"logits{i}" for i in range(len(cases))]
    start(
        [
            logits_command(ours, folder / "tokens.bin", out, precision)
            for (_, ours, _, precision), out in zip(cases, outs)
        ]
    )
    for (tiny, _, mistake, precision), out in zip(cases, outs):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        theirs = logits_of(read_model(folder / tiny.folder, dtype), rows)
        difference = largest_difference(read_saved(out)["logits"], theirs)
        what = "logits" if precision == "fp32" else "logits, computed in bf16,"
        yield Result(
            tiny.name,
            what,
            difference,
            TOLERANCE if precision == "fp32" else BF16_TOLERANCE,
            mistake,
        )


def logits_command(model, data, out, precision="fp32"):
    return command(
        LOGITS,
        init_from=model,
        data=data,
        order="sequential",
        vocab_size=VOCABULARY,
        context=CONTEXT,
        micro_batch_size=ROWS,
        precision=precision,
        out=out,
    )


@torch.no_grad()
def logits_of(model, rows):
    return model(rows).logits.float()
