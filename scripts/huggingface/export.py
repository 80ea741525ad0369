"""Folders that ./ladder export writes, as transformers reads them: runs from scratch, and models
that only pass through."""

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from huggingface.logits import logits_of
from huggingface.models import FAMILIES, MODELS, VOCABULARY, write_model
from huggingface.runs import (
    BUILD,
    LOGITS,
    Result,
    command,
    largest_difference,
    read_saved,
    start,
    trainer,
    windows,
    write_tokens,
)

EXPORT = BUILD / "common/train/ladder_export"
EXPORTED = {}  # all folders that this script has exported, by name, for the part servers
TOLERANCE = 1e-5
CONTEXT, ROWS, VOCABULARY_OF_BYTES, END_OF_TEXT = 32, 2, 258, 256
SHAPE = {"context": CONTEXT, "layers": 2, "heads": 4, "channels": 32}
TWO_RANKS, UNTIED = {"transport": "threads", "ranks": 2}, {"tie_embeddings": "false"}
# Runs on the built-in corpus: their trainer, what shapes their model, and what else they are told.
WAYS = [
    ("step0_single_gpu", {}, {}),
    ("step5_zero1", {}, TWO_RANKS),
    ("step7_zero3", UNTIED, TWO_RANKS),
    ("step8_pipeline_ga", UNTIED, {**TWO_RANKS, "pipeline_stages": 2}),
]
RUNS = {
    f"{family.name} of {step}{', untied' if shape else ''}": (
        step,
        {**family.options, **shape},
        further,
    )
    for i, family in enumerate(FAMILIES)
    for step, shape, further in WAYS[i % 2 :: 2]
}
TEXT = "SELECT name\tFROM users WHERE id = 7;\n\0 café 🙂 \u200d\u0301 <|endoftext|>"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def export(runs):
    """Exports all (name, run, folder, *options)."""
    start([[EXPORT, *words] for _, *words in runs])
    folders = {name: folder for name, _, folder, *_ in runs}
    assert len(folders) == len(runs) and not EXPORTED.keys() & folders
    EXPORTED.update(folders)


def check(folder, has_mistakes):
    yield from check_runs(folder)
    yield from check_ways_through(folder, has_mistakes)


# ---- runs from scratch ------------------------------------------------------------------------------------------------


def check_runs(folder):
    tokens = write_tokens(folder / "bytes.bin", ROWS * CONTEXT + 1, VOCABULARY_OF_BYTES)
    runs = [
        (name, folder / f"run{i}", folder / f"exported{i}", folder / f"said{i}")
        for i, name in enumerate(RUNS)
    ]
    start(
        [
            command(trainer(step), **SHAPE, **shape, **further, steps=3, out=out)
            for (step, shape, further), (_, out, _, _) in zip(RUNS.values(), runs)
        ]
    )
    export([run[:3] for run in runs])
    start([said_command(name, out, said, folder / "bytes.bin") for name, out, _, said in runs])
    rows, _ = windows(tokens, CONTEXT, ROWS)
    for name, _, exported, said in runs:
        model, info = AutoModelForCausalLM.from_pretrained(exported, output_loading_info=True)
        yield Result(
            name,
            "names that transformers misses or has not asked for",
            sum(map(len, info.values())),
        )
        yield Result(
            name,
            "logits",
            largest_difference(read_saved(said)["logits"], logits_of(model.eval(), rows)),
            TOLERANCE,
        )
        yield from check_text(name, exported, model)


def said_command(name, run, out, data):
    """The logits of a run's last checkpoint."""
    return command(
        LOGITS,
        **SHAPE,
        **RUNS[name][1],
        init_from=run,
        data=data,
        order="sequential",
        tokenizer="bytes",
        micro_batch_size=ROWS,
        out=out,
    )


def check_text(name, exported, model):
    """Tokens are bytes, and the model writes on until the end of the text."""
    tokenizer = AutoTokenizer.from_pretrained(exported)
    text, end = TEXT.split("<|endoftext|>")[0], [END_OF_TEXT]
    wrong = (
        tokenizer(TEXT).input_ids != [*text.encode(), *end]
        or tokenizer.decode(tokenizer(TEXT).input_ids) != TEXT
    )
    wrong += tokenizer.eos_token_id != END_OF_TEXT or tokenizer.pad_token_id != END_OF_TEXT + 1
    yield Result(name, "tokens of a text and its bytes", wrong)
    start_of_text = tokenizer("SELECT", return_tensors="pt")
    written = model.generate(**start_of_text, max_new_tokens=8, do_sample=False)
    likely = model(written).logits.argmax(-1)
    begin = start_of_text.input_ids.size(1)
    yield Result(
        name,
        "what generate() writes and the likeliest tokens",
        largest_difference(written[:, begin:], likely[:, begin - 1 : -1]),
    )


# ---- models that only pass through ------------------------------------------------------------------------------------


def check_ways_through(folder, has_mistakes):
    """Read, written, without a step of training: the same folder, as far as transformers can tell,
    though the run has only half of the model's context."""
    data = folder / "through.bin"
    write_tokens(data, CONTEXT + 1, VOCABULARY)
    runs = [(tiny, write_model(tiny, folder), folder / f"through_{tiny.folder}") for tiny in MODELS]
    start(
        [
            command(
                trainer("step0_single_gpu"),
                init_from=model,
                data=data,
                vocab_size=VOCABULARY,
                context=CONTEXT,
                micro_batch_size=1,
                steps=0,
                out=out,
            )
            for tiny, model, out in runs
        ]
    )
    export(
        [
            (f"{tiny.name}, {dtype}", out, out / dtype, "--dtype", dtype)
            for tiny, _, out in runs
            for dtype in DTYPES
        ]
    )
    for tiny, model, out in runs:
        there = tensors_of(model)
        for dtype, of_torch in DTYPES.items():
            wanted = {name: tensor.float().to(of_torch) for name, tensor in there.items()}
            back = tensors_of(out / dtype)
            has_other_types = any(
                wanted[name].dtype != tensor.dtype
                for name, tensor in back.items()
                if name in wanted
            )
            yield Result(
                tiny.name,
                f"tensors that came back as {dtype}",
                largest_difference(wanted, back) or has_other_types,
            )
        yield Result(
            tiny.name, "settings that came back", len(differing_settings(model, out / "fp32"))
        )
    if has_mistakes:
        (first, model, _), (other, _, out) = runs[:2]
        yield Result(
            first.name,
            "settings",
            len(differing_settings(model, out / "fp32")),
            mistake=f"those of {other.name}",
        )
        yield Result(
            first.name,
            "tensors",
            largest_difference(tensors_of(model), tensors_of(out / "fp32")),
            mistake=f"those of {other.name}",
        )


def tensors_of(folder):
    """The tensors of all files together, by their names in them."""
    return {
        name: tensor
        for file in folder.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


# They say nothing about the model's function: who wrote the folder, and what its tokens mean.
OF_NO_MATTER = {
    "transformers_version",
    "dtype",
    "_name_or_path",
    "initializer_range",
    "architectures",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
}


def differing_settings(a, b):
    """The settings are as transformers reads them, defaults included."""
    first, second = (AutoConfig.from_pretrained(folder).to_dict() for folder in (a, b))
    for settings in (first, second):  # an older name of "rope_type", which is there as well
        settings.get("rope_parameters", {}).pop("type", None)
        if settings.get("activation_function") == "gelu_pytorch_tanh":  # another name of this one
            settings["activation_function"] = "gelu_new"
    return {
        name
        for name in (first.keys() | second.keys()) - OF_NO_MATTER
        if first.get(name) != second.get(name)
    }
