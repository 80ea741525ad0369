#!/usr/bin/env python3
"""nanoGPT's ckpt.pt as a Hugging Face folder, from which ./ladder train STEP --init-from FOLDER
starts.

    .ladder/venv/bin/python scripts/from_nanogpt.py CKPT.pt FOLDER [--gelu tanh]

FOLDER must be new.

Linear weights are transposed, for GPT-2 stores them [in, out]. The prefix that torch.compile adds
to names is dropped. Biases that nanoGPT leaves out (bias=False) become zeros, which is the same
function; training then moves them. A vocabulary that was padded (50304) stays so.

A checkpoint does not say how it computes GELU: exactly, as nanoGPT's nn.GELU() does, or by tanh,
as its new_gelu() did before. So --gelu says it; the folder is of nn.GELU() otherwise.

The file is read with weights_only: it cannot run code. Needs PyTorch.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import torch
from tensor_files import write_tensors

SHAPE = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "n_positions": "block_size",
    "vocab_size": "vocab_size",
}
TRANSPOSED = re.compile(r"(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$")
GELU = {"exact": "gelu", "tanh": "gelu_new"}  # transformers' names
BUFFER = re.compile(r"\.attn\.(bias|masked_bias)$")  # the causal mask


class Refused(Exception):
    """What is wrong with the file."""


def shapes_of(config):
    """GPT-2's parameters: names without "transformer.", shapes [in, out]."""
    C, V, T = config["n_embd"], config["vocab_size"], config["n_positions"]
    shapes = {"wte.weight": [V, C], "wpe.weight": [T, C], "ln_f.weight": [C], "ln_f.bias": [C]}
    matrices = {
        "attn.c_attn": [C, 3 * C],
        "attn.c_proj": [C, C],
        "mlp.c_fc": [C, 4 * C],
        "mlp.c_proj": [4 * C, C],
    }
    for layer in range(config["n_layer"]):
        for name, shape in matrices.items():
            shapes[f"h.{layer}.{name}.weight"], shapes[f"h.{layer}.{name}.bias"] = shape, shape[1:]
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{layer}.{name}.weight"] = shapes[f"h.{layer}.{name}.bias"] = [C]
    return shapes


def read(path):
    """The config and the state dict."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Refused("no such file") from None
    except Exception as error:
        reason = (
            str(error).splitlines()[0].split(". ")[0]
        )  # what follows is the advice to read it unsafely
        raise Refused(f"cannot be read as a ckpt.pt: {reason}") from None
    if not (
        isinstance(checkpoint, dict)
        and isinstance(checkpoint.get("model"), dict)
        and isinstance(checkpoint.get("model_args"), dict)
    ):
        raise Refused('is no checkpoint of nanoGPT: it has no "model" and "model_args"')
    arguments = checkpoint["model_args"]
    for name in SHAPE.values():
        if not (isinstance(arguments.get(name), int) and 0 < arguments[name] < 2**31):
            raise Refused(
                f'"{name}" is {arguments.get(name)!r} in its model_args, it must be a whole number above 0'
            )
    return {ours: arguments[theirs] for ours, theirs in SHAPE.items()}, checkpoint["model"]


def convert(config, state):
    """The tensors by GPT-2's names, and how many biases were filled in."""
    found = {}
    for name, tensor in state.items():
        name = name.removeprefix("_orig_mod.").removeprefix("transformer.")
        if not BUFFER.search(name):
            found[name] = tensor.t() if TRANSPOSED.search(name) else tensor
    head = found.pop("lm_head.weight", None)
    if head is not None and not torch.equal(head, found.get("wte.weight", torch.empty(0))):
        raise Refused('"lm_head.weight" is not the token embedding, which it is in nanoGPT')
    tensors, num_filled = {}, 0
    for name, shape in shapes_of(config).items():
        tensor = found.pop(name, None)
        if tensor is None and name.endswith(".bias"):
            tensor, num_filled = torch.zeros(shape), num_filled + 1
        if tensor is None:
            raise Refused(f'holds no tensor "{name}"')
        if list(tensor.shape) != shape:
            raise Refused(
                f'"{name}" has the shape {list(tensor.shape)}, its model_args say {shape}'
            )
        tensors[name] = tensor
    if found:
        raise Refused(f'holds "{next(iter(found))}", which GPT-2 has no place for')
    return tensors, num_filled


def write_folder(source, folder, gelu="exact"):
    if os.path.lexists(folder):
        raise Refused(f"{folder} already exists: name a new folder")
    config, state = read(source)
    tensors, num_filled = convert(config, state)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=folder.parent, prefix=f".{folder.name}.partial-"
    ) as partial:
        made = Path(partial, "made")
        made.mkdir()
        write_tensors(
            made / "model.safetensors",
            {
                f"transformer.{name}": (tensor.shape, tensor.float().contiguous().numpy().tobytes())
                for name, tensor in tensors.items()
            },
        )
        settings = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            **config,
            "activation_function": GELU[gelu],
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }
        (made / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        made.rename(folder)
    print(
        f"{folder}: {sum(t.numel() for t in tensors.values()):,} parameters"
        + (f"; {num_filled} biases are zeros" if num_filled else "")
        + f"; --gelu {gelu}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", metavar="CKPT.pt", type=Path)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument(
        "--gelu", choices=GELU, default="exact", help="tanh: of a version with new_gelu()"
    )
    arguments = parser.parse_args()
    try:
        write_folder(arguments.checkpoint, arguments.folder, arguments.gelu)
    except Refused as refused:
        print(f"error: {arguments.checkpoint}: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
