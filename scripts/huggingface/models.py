"""Small models of transformers, with values made at random, in folders as save_pretrained() writes
them.

transformers starts all norms at 1, all biases at 0 and all weights near 0: a model whose logits
hardly depend on half of its parts. Here every tensor is random, and large enough that each of them
shows in the logits.

A new family of models has a row in FAMILIES, and its kinds in MODELS and MISTAKES. All other files
ask here.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

VOCABULARY, LAYERS, HEADS, CHANNELS, POSITIONS = 301, 3, 12, 48, 64
CONTEXT = 40  # of what is compared: less than the model has positions


def gpt2(**changes):
    """GPT-2 without dropout, as we train."""
    shape = {
        "vocab_size": VOCABULARY,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": CHANNELS,
        "n_positions": POSITIONS,
    }
    rest = {
        "resid_pdrop": 0,
        "embd_pdrop": 0,
        "attn_pdrop": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2Config(**{**shape, **rest, **changes})


def llama(kind=LlamaConfig, **changes):
    shape = {
        "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": CHANNELS,
        "max_position_embeddings": POSITIONS,
        "intermediate_size": 80,
        "num_key_value_heads": 4,
    }
    return kind(**{**shape, "rope_theta": 100000.0, "tie_word_embeddings": True, **changes})


def qwen2(**changes):
    return llama(Qwen2Config, **changes)


def qwen3(**changes):
    """Its queries are twice as wide as the residual stream."""
    return llama(Qwen3Config, **{"head_dim": 2 * CHANNELS // HEADS, **changes})


def mistral(**changes):
    """Its window is as long as the longest text."""
    window = changes.get("max_position_embeddings", CONTEXT)
    return llama(MistralConfig, **{"sliding_window": window, **changes})


def smollm3(**changes):
    """Its second layer has no positions."""
    return llama(SmolLM3Config, **{"no_rope_layer_interval": 2, "pad_token_id": None, **changes})


def olmo2(**changes):
    return llama(Olmo2Config, **{"pad_token_id": None, **changes})


@dataclass(frozen=True)
class Family:
    name: str  # of its plainest model in MODELS
    config: Callable  # of transformers, with changed settings
    positions: str  # the setting that says how many there are
    options: dict = field(default_factory=dict)  # of a run of ours from scratch

    def reading(self, name, vocabulary, context):
        """A model of another size."""
        return Tiny(name, self.config(vocab_size=vocabulary, **{self.positions: context}))


FAMILIES = [
    Family("GPT-2", gpt2, "n_positions"),
    Family("Llama", llama, "max_position_embeddings",
           {"model": "llama", "kv_heads": 2, "rope_theta": 3000, "norm_eps": 1e-4, "mlp_channels": 72}),
    Family("Mistral", mistral, "max_position_embeddings",
           {"model": "mistral", "kv_heads": 2, "head_channels": 12, "norm_eps": 1e-6}),
    Family("SmolLM3", smollm3, "max_position_embeddings",
           {"model": "smollm3", "kv_heads": 2, "no_rope_interval": 2}),
    Family("OLMo 2", olmo2, "max_position_embeddings",
           {"model": "olmo2", "kv_heads": 2, "rope_theta": 300, "rope_scaling": "linear:2.5"}),
    Family("Qwen2", qwen2, "max_position_embeddings",
           {"model": "qwen2", "kv_heads": 2, "rope_theta": 300, "rope_scaling": "llama3:8:1:4:24"}),
    Family("Qwen3", qwen3, "max_position_embeddings",
           {"model": "qwen3", "kv_heads": 2, "head_channels": 12, "rope_scaling": "linear:2.5"}),
]  # fmt: skip


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


# Of the eight pairs of such a head, some keep their speed, some are slowed down, and one is between.
SLOWED = {
    "head_dim": 16,
    "rope_theta": 100.0,
    "rope_parameters": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 3.0,
        "original_max_position_embeddings": 32,
    },
}
LINEAR = {"rope_theta": 500.0, "rope_parameters": {"rope_type": "linear", "factor": 2.5}}

MODELS = [
    Tiny("GPT-2", gpt2()),
    Tiny("GPT-2, untied", gpt2(tie_word_embeddings=False)),
    Tiny(
        "GPT-2, a narrow MLP",
        gpt2(n_inner=80, layer_norm_epsilon=1e-4, activation_function="gelu_pytorch_tanh"),
    ),
    Tiny("GPT-2, exact GELU", gpt2(activation_function="gelu")),
    Tiny("GPT-2, in several files", gpt2(), file_size="60KB"),
    Tiny("GPT-2, stored in bf16", gpt2(), dtype=torch.bfloat16),
    Tiny("Llama", llama()),
    Tiny("Llama, untied", llama(tie_word_embeddings=False)),
    Tiny(
        "Llama, a key for each query", llama(num_key_value_heads=HEADS, tie_word_embeddings=False)
    ),
    Tiny("Llama, one key for all queries", llama(num_key_value_heads=1, rms_norm_eps=1e-5)),
    Tiny("Llama, in several files", llama(), file_size="60KB"),
    Tiny("Llama, an older config.json", llama(rope_theta=500.0), is_old=True),
    Tiny("Llama, slowed as Llama 3", llama(**SLOWED)),
    Tiny("Llama, slowed as Llama 3, an older config.json", llama(**SLOWED), is_old=True),
    Tiny("Llama, an older config.json, slowed", llama(**LINEAR), is_old=True),
    Tiny("Qwen2", qwen2(sliding_window=8)),
    Tiny("Qwen2, untied, slowed", qwen2(tie_word_embeddings=False, **LINEAR)),
    Tiny("Qwen3", qwen3()),
    Tiny("Qwen3, untied", qwen3(head_dim=CHANNELS // HEADS, tie_word_embeddings=False)),
    Tiny("Mistral", mistral()),
    Tiny("Mistral, untied, no window", mistral(sliding_window=None, tie_word_embeddings=False)),
    Tiny("SmolLM3", smollm3()),
    Tiny(
        "SmolLM3, untied, no positions",
        smollm3(no_rope_layer_interval=1, tie_word_embeddings=False),
    ),
    Tiny("OLMo 2", olmo2()),
    Tiny(
        "OLMo 2, untied, an older config.json",
        olmo2(tie_word_embeddings=False, head_dim=16, **LINEAR),
        is_old=True,
    ),
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


def edit_json(file, edit=dict, **values):
    file.write_text(json.dumps({**edit(json.loads(file.read_text())), **values}, indent=2))


def with_old_names(config):
    rope = config.pop("rope_parameters")
    theta, kind = rope.pop("rope_theta"), rope.pop("rope_type")
    scaling = {"type" if kind == "linear" else "rope_type": kind, **rope}
    return {
        **config,
        "rope_theta": theta,
        "rope_scaling": None if kind == "default" else scaling,
        "torch_dtype": config.pop("dtype"),
    }


@torch.no_grad()
def read_model(folder, dtype=torch.float32, has_biases=True):
    """The folder's model, or one with biases of zero."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        parameter.mul_(has_biases or not name.endswith(".bias"))
    return model


# ---- mistakes ---------------------------------------------------------------------------------------------------------


def write_wrong(folder, mistake, change):
    """A copy of a model's folder, in one file, with tensors and settings as change(tensors, config)
    leaves them."""
    wrong = shutil.copytree(folder, folder.with_name(f"{folder.name}_{mistake}"))
    tensors, config = (
        load_file(wrong / "model.safetensors"),
        json.loads((wrong / "config.json").read_text()),
    )
    change(tensors, config)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        wrong / "model.safetensors",
        {"format": "pt"},
    )
    (wrong / "config.json").write_text(json.dumps(config))
    return wrong


def of_each(names, change):
    """Changes each of the tensors whose names match."""
    return lambda tensors, _: tensors.update(
        {name: change(tensor) for name, tensor in tensors.items() if re.search(names, name)}
    )


def swap(a, b):
    return lambda tensors, _: tensors.update(
        {name.replace(a, b): tensors[name] for name in tensors if a in name}
        | {name.replace(b, a): tensors[name] for name in tensors if b in name}
    )


def swap_queries_and_keys(weight):
    q, k, v = weight.chunk(3, dim=-1)
    return torch.cat([k, q, v], dim=-1)


def interleave_rotations(weight):
    """Rows in the order in which Meta's own files have queries and keys: a rotation takes
    neighbors, and not the halves of a head."""
    per_head = weight.view(-1, CHANNELS // HEADS, CHANNELS)
    return per_head.unflatten(1, (2, -1)).transpose(1, 2).reshape(weight.shape)


def reverse_heads(weight):
    return weight.unflatten(0, (-1, CHANNELS // HEADS)).flip(0).reshape(weight.shape)


def transpose_squares(weight):
    return weight.t() if weight.dim() == 2 and weight.size(0) == weight.size(1) else weight


# What is planted into which model, for the self-test: into tensors, or the configuration.
MISTAKES = [
    ("GPT-2", "queries and keys swapped", of_each("c_attn", swap_queries_and_keys)),
    ("GPT-2", "square weights transposed", of_each("", transpose_squares)),
    (
        "GPT-2, exact GELU",
        "the one by tanh",
        lambda _, config: config.update(activation_function="gelu_new"),
    ),
    (
        "GPT-2",
        "the last norm's weight rounded to bf16",
        of_each("ln_f.weight", lambda weight: weight.bfloat16().float()),
    ),
    ("Llama, a key for each query", "queries and keys swapped", swap("q_proj", "k_proj")),
    (
        "Llama",
        "neighbors are rotated instead of halves",
        of_each("[qk]_proj", interleave_rotations),
    ),
    ("Llama", "keys and values in another order", of_each("[kv]_proj", reverse_heads)),
    ("Llama", "square weights transposed", of_each("", transpose_squares)),
    ("Llama", "gate and up swapped", swap("gate_proj", "up_proj")),
    (
        "Llama",
        "another rope_theta",
        lambda _, config: config["rope_parameters"].update(rope_theta=90000.0),
    ),
    (
        "Llama, slowed as Llama 3",
        "another factor",
        lambda _, config: config["rope_parameters"].update(factor=4.1),
    ),
    ("Qwen2", "biases of keys and values swapped", swap("k_proj.bias", "v_proj.bias")),
    ("Qwen3", "norms of queries and keys swapped", swap("q_norm", "k_norm")),
    (
        "SmolLM3",
        "another layer without positions",
        lambda _, config: config.update(no_rope_layers=[1, 1, 0]),
    ),
    (
        "OLMo 2",
        "norms of attention and MLP swapped",
        swap("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
    ("Llama", "another eps", lambda _, config: config.update(rms_norm_eps=2e-5)),
]
