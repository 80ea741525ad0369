"""Small models of transformers, with values made at random, in folders as save_pretrained() writes them.

transformers starts all norms at 1, all biases at 0 and all weights near 0: a model whose logits hardly depend on half of its
parts. Here every tensor is random, and large enough that each of them shows in the logits.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

VOCABULARY, LAYERS, HEADS, CHANNELS, POSITIONS = 301, 3, 6, 48, 64
CONTEXT = 40  # of what is compared: less than the model has positions


def gpt2(**changes):
    """Without dropout, as we train."""
    shape = {"vocab_size": VOCABULARY, "n_layer": LAYERS, "n_head": HEADS, "n_embd": CHANNELS, "n_positions": POSITIONS}
    rest = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2Config(**{**shape, **rest, **changes})


def llama(**changes):
    shape = {"vocab_size": VOCABULARY, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": CHANNELS,
             "max_position_embeddings": POSITIONS, "intermediate_size": 80, "num_key_value_heads": 2}  # fmt: skip
    return LlamaConfig(**{**shape, "rope_theta": 100000.0, "tie_word_embeddings": True, **changes})


@dataclass(frozen=True)
class Tiny:
    name: str
    config: object
    dtype: torch.dtype = torch.float32
    file_size: str = "1GB"  # of the largest file
    is_old: bool = False  # config.json is written as before version 5 of transformers

    @property
    def folder(self):
        return self.name.replace(" ", "_").replace(",", "")


MODELS = [
    Tiny("GPT-2", gpt2()),
    Tiny("GPT-2, untied", gpt2(tie_word_embeddings=False)),
    Tiny("GPT-2, a narrow MLP", gpt2(n_inner=80, layer_norm_epsilon=1e-4, activation_function="gelu_pytorch_tanh")),
    Tiny("GPT-2, in several files", gpt2(), file_size="60KB"),
    Tiny("GPT-2, stored in bf16", gpt2(), dtype=torch.bfloat16),
    Tiny("Llama", llama()),
    Tiny("Llama, untied", llama(tie_word_embeddings=False)),
    Tiny("Llama, a key for each query", llama(num_key_value_heads=HEADS, tie_word_embeddings=False)),
    Tiny("Llama, one key for all queries", llama(num_key_value_heads=1, rms_norm_eps=1e-5)),
    Tiny("Llama, in several files", llama(), file_size="60KB"),
    Tiny("Llama, an older config.json", llama(rope_theta=500.0), is_old=True),
    Tiny("Llama, stored in bf16", llama(), dtype=torch.bfloat16),
    Tiny("Llama, stored in fp16", llama(), dtype=torch.float16),
]
BY_NAME = {tiny.name: tiny for tiny in MODELS}


@torch.no_grad()
def randomize(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_scale = name.endswith("weight") and parameter.dim() == 1  # of a norm
        parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator) + is_scale)
    return model


def write_model(tiny, parent):
    """The model's folder, made at the first call."""
    folder = Path(parent) / tiny.folder
    if not folder.exists():
        model = randomize(AutoModelForCausalLM.from_config(tiny.config)).to(tiny.dtype)
        model.save_pretrained(folder, max_shard_size=tiny.file_size)
        if tiny.is_old:
            edit_json(folder / "config.json", with_old_names)
    return folder


def edit_json(file, edit):
    file.write_text(json.dumps(edit(json.loads(file.read_text())), indent=2))


def with_old_names(config):
    rope = config.pop("rope_parameters")
    return {**config, "rope_theta": rope["rope_theta"], "rope_scaling": None, "torch_dtype": config.pop("dtype")}


@torch.no_grad()
def read_model(folder, dtype=torch.float32, has_biases=True):
    """Or one with biases of zero."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        parameter.mul_(has_biases or not name.endswith(".bias"))
    return model


# ---- mistakes ---------------------------------------------------------------------------------------------------------


def swap_queries_and_keys(name, tensors):
    if "c_attn" in name:
        q, k, v = tensors[name].chunk(3, dim=-1)
        return torch.cat([k, q, v], dim=-1)
    other = name.replace("q_proj", "*").replace("k_proj", "q_proj").replace("*", "k_proj")
    return tensors[other]


def interleave_rotations(name, tensors):
    """As Meta's own files have queries and keys: a rotation takes neighbors, and not the halves of a head."""
    weight = tensors[name]
    if "q_proj" in name or "k_proj" in name:
        per_head = weight.view(-1, CHANNELS // HEADS, CHANNELS)
        return per_head.unflatten(1, (2, -1)).transpose(1, 2).reshape(weight.shape)
    return weight


def reverse_key_heads(name, tensors):
    weight = tensors[name]
    if "k_proj" in name or "v_proj" in name:
        return weight.unflatten(0, (-1, CHANNELS // HEADS)).flip(0).reshape(weight.shape)
    return weight


def transpose_squares(name, tensors):
    weight = tensors[name]
    return weight.t() if weight.dim() == 2 and weight.size(0) == weight.size(1) else weight


def swap_gate_and_up(name, tensors):
    return tensors[name.replace("gate_proj", "*").replace("up_proj", "gate_proj").replace("*", "up_proj")]


def round_last_norm(name, tensors):
    is_last = name.endswith(("ln_f.weight", "model.norm.weight"))
    return tensors[name].bfloat16().float() if is_last else tensors[name]


def write_wrong(folder, change=None, edit=None):
    """A copy of a model's folder, in one file, with each tensor as change(name, tensors) says and with an edited config.json."""
    wrong = folder.with_name(f"{folder.name}_{(change or edit).__name__}")
    shutil.copytree(folder, wrong)
    if change:
        tensors = load_file(wrong / "model.safetensors")
        changed = {name: change(name, tensors).contiguous() for name in tensors}
        save_file(changed, wrong / "model.safetensors", {"format": "pt"})
    if edit:
        edit_json(wrong / "config.json", edit)
    return wrong


def rotate_faster(config):
    return {**config, "rope_parameters": {**config["rope_parameters"], "rope_theta": 90000.0}}


def larger_eps(config):
    return {**config, **{key: 2e-5 for key in ("rms_norm_eps", "layer_norm_epsilon") if key in config}}


# What is planted into which model, for the self-test: tensors, or the configuration.
MISTAKES = [
    ("GPT-2", "queries and keys swapped", {"change": swap_queries_and_keys}),
    ("GPT-2", "square weights transposed", {"change": transpose_squares}),
    ("GPT-2", "the last norm's weight rounded to bf16", {"change": round_last_norm}),
    ("Llama, a key for each query", "queries and keys swapped", {"change": swap_queries_and_keys}),
    ("Llama", "neighbors are rotated instead of halves", {"change": interleave_rotations}),
    ("Llama", "keys and values in another order", {"change": reverse_key_heads}),
    ("Llama", "square weights transposed", {"change": transpose_squares}),
    ("Llama", "gate and up swapped", {"change": swap_gate_and_up}),
    ("Llama", "another rope_theta", {"edit": rotate_faster}),
    ("Llama", "another eps", {"edit": larger_eps}),
]
