"""Models of llm.c and nanoGPT: written here, from a GPT-2 of transformers, as these programs write
them."""

import struct
import sys

import torch
from from_nanogpt import Refused, write_folder

from huggingface.logits import ROWS, TOLERANCE, logits_command, logits_of
from huggingface.models import (
    BY_NAME,
    CHANNELS,
    CONTEXT,
    HEADS,
    LAYERS,
    POSITIONS,
    VOCABULARY,
    read_model,
    write_model,
)
from huggingface.runs import (
    ROOT,
    Result,
    largest_difference,
    read_saved,
    start,
    windows,
    write_tokens,
)
from stand_ins import refusal

LLM_C_MAGIC, LLM_C_VERSIONS = 20240326, {torch.float32: 3, torch.bfloat16: 5}
LINEAR = (
    "attn.c_attn.weight",
    "attn.c_proj.weight",
    "mlp.c_fc.weight",
    "mlp.c_proj.weight",
)  # which both have as [out, in]
PARTS_OF_A_LAYER = (
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
)  # fmt: skip


EXACT = {"nanoGPT", "nanoGPT, compiled", "nanoGPT, no biases"}  # which is what the script takes


def check(folder, has_mistakes):
    tokens = write_tokens(folder / "tokens.bin", ROWS * CONTEXT + 1, VOCABULARY)
    rows, _ = windows(tokens, CONTEXT, ROWS)
    original = write_model(BY_NAME["GPT-2"], folder)
    exact = write_model(BY_NAME["GPT-2, exact GELU"], folder)  # the same weights
    written = {
        "llm.c, fp32": (write_llm_c(original, folder / "fp32.bin", torch.float32), torch.float32),
        "llm.c, bf16": (write_llm_c(original, folder / "bf16.bin", torch.bfloat16), torch.bfloat16),
        "nanoGPT": (write_nanogpt(original, folder / "nanogpt", ""), torch.float32),
        "nanoGPT, --gelu tanh": (
            write_nanogpt(original, folder / "nanogpt_tanh", "", gelu="tanh"),
            torch.float32,
        ),
        "nanoGPT, compiled": (
            write_nanogpt(original, folder / "nanogpt_compiled", "_orig_mod."),
            torch.float32,
        ),
        "nanoGPT, no biases": (
            write_nanogpt(original, folder / "nanogpt_no_biases", "", has_biases=False),
            torch.float32,
        ),
    }
    if has_mistakes:
        written["llm.c, transposed"] = (
            write_llm_c(original, folder / "wrong.bin", torch.float32, linear=()),
            torch.float32,
        )
    outs = [folder / f"format{i}" for i in range(len(written))]
    start(
        [
            logits_command(path, folder / "tokens.bin", out)
            for (path, _), out in zip(written.values(), outs)
        ]
    )
    for (name, (_, dtype)), out in zip(written.items(), outs):
        theirs = logits_of(
            read_model(exact if name in EXACT else original, has_biases="no biases" not in name)
            .to(dtype)
            .float(),
            rows,
        )
        mistake = "weights are not transposed" if "transposed" in name else ""
        yield Result(
            name,
            "logits",
            largest_difference(read_saved(out)["logits"], theirs),
            TOLERANCE,
            mistake,
        )
    yield from check_refusals(folder / "nanogpt/ckpt.pt", folder / "refused")


@torch.no_grad()
def by_name(folder, linear=LINEAR):
    """The model's parameters, by their names in nanoGPT, linear weights as [out, in]."""
    parameters = read_model(folder).named_parameters()
    return {
        name: p.t().contiguous() if name.endswith(linear) else p.clone() for name, p in parameters
    }


def write_llm_c(folder, file, dtype, linear=LINEAR):
    """Writes as llm.c's train_gpt2.py does: a padded vocabulary, all layers of one kind of tensor
    before the next kind."""
    tensors, padded = by_name(folder, linear), -(-VOCABULARY // 128) * 128
    embedding = torch.zeros(padded, CHANNELS)
    embedding[:VOCABULARY] = tensors["transformer.wte.weight"]
    order = [embedding, tensors["transformer.wpe.weight"]]
    order += [
        tensors[f"transformer.h.{layer}.{part}"]
        for part in PARTS_OF_A_LAYER
        for layer in range(LAYERS)
    ]
    order += [tensors["transformer.ln_f.weight"], tensors["transformer.ln_f.bias"]]
    header = [
        LLM_C_MAGIC,
        LLM_C_VERSIONS[dtype],
        POSITIONS,
        VOCABULARY,
        LAYERS,
        HEADS,
        CHANNELS,
        padded,
    ]
    data = torch.cat([tensor.flatten() for tensor in order]).to(dtype)
    file.write_bytes(
        struct.pack("<256i", *header, *[0] * (256 - len(header)))
        + data.view(torch.uint8).numpy().tobytes()
    )
    return file


def write_nanogpt(folder, parent, prefix, has_biases=True, gelu=None):
    """A ckpt.pt, with a mask, and what scripts/from_nanogpt.py makes of it."""
    tensors = {
        name: tensor
        for name, tensor in by_name(folder).items()
        if has_biases or not name.endswith(".bias")
    }
    tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, POSITIONS, POSITIONS)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    shape = {
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": CHANNELS,
        "block_size": POSITIONS,
        "vocab_size": VOCABULARY,
        "bias": has_biases,
        "dropout": 0.0,
    }
    parent.mkdir()
    rest = {
        "model_args": shape,
        "iter_num": 7,
        "best_val_loss": torch.tensor(1.5),
        "optimizer": {},
        "config": {"dataset": "sql"},
    }
    torch.save(
        {"model": {prefix + name: tensor for name, tensor in tensors.items()}, **rest},
        parent / "ckpt.pt",
    )
    start(
        [
            [
                sys.executable,
                str(ROOT / "scripts/from_nanogpt.py"),
                str(parent / "ckpt.pt"),
                str(parent / "folder"),
                *(["--gelu", gelu] if gelu else []),
            ]
        ]
    )
    return parent / "folder"


# What is done to a ckpt.pt, by the reason why it is refused.
SPOILS = {
    "no tensor": lambda c: c["model"].pop("transformer.h.1.ln_2.weight"),
    "has the shape": lambda c: c["model_args"].update(block_size=4),
    "no place": lambda c: c["model"].update({f"transformer.h.{LAYERS}.ln_1.weight": torch.ones(4)}),
    "not the token embedding": lambda c: c["model"].update({"lm_head.weight": torch.ones(7, 4)}),
    '"n_layer" is': lambda c: c["model_args"].update(n_layer="2"),
    'no "model" and': lambda c: c.pop("model_args"),
}


def check_refusals(source, parent):
    parent.mkdir()
    cut, exists, files = parent / "cut.pt", parent / "exists", {}
    cut.write_bytes(source.read_bytes()[:100])
    exists.mkdir()
    for i, (reason, spoil) in enumerate(SPOILS.items()):
        checkpoint = torch.load(source, weights_only=True)
        spoil(checkpoint)
        torch.save(checkpoint, parent / f"{i}.pt")
        files[parent / f"{i}.pt", parent / "made"] = reason
    files |= {
        (cut, parent / "made"): "cannot be read as",
        (parent / "none.pt", parent / "made"): "no such file",
        (source, exists): "already exists",
    }
    for (file, made), reason in files.items():
        yield Result(
            "nanoGPT",
            f"what is said of a ckpt.pt and '{reason}'",
            reason not in refusal(Refused, write_folder, file, made),
        )
    yield Result(
        "nanoGPT",
        "what refusals leave behind and nothing",
        len([*parent.iterdir()]) - len(SPOILS) - 2,
    )
