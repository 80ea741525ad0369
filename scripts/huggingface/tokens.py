"""Tokens of exported folders, opened as users do: AutoTokenizer has the ids of the run, and
generate() stops."""

import json
import shutil
from functools import partial

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from huggingface.chat import CONTEXT, IGNORED, SPECIALS, VOCABULARY, write_tokenizer
from huggingface.export import export
from huggingface.models import FAMILIES, edit_json, write_model
from huggingface.runs import (
    LOGITS,
    Result,
    command,
    encode,
    largest_difference,
    read_saved,
    start,
    trainer,
)

MODELS = {
    family.name: family.reading(f"a {family.name} with a tokenizer", VOCABULARY, CONTEXT)
    for family in FAMILIES
}
QWEN2_SETTINGS = "Qwen 2's settings"
TEXTS = [
    "in 2026 it's 12345",
    "  2026\n\n 3.14",
    "<|im_start|>user<|im_end|> x<|endoftext|>",
    "DON'T caf\u00e9 \U0001f642",
    "cafe\u0301 \u1112\u1161\u11ab a\u0301\u0323\u212b",
]
# Who ends a text by what: the tokenizer's eos_token, how the run reads its rows, and what of a
# folder is edited first.
ENDS = {
    "an instruct model on documents": ("<|im_end|>", "documents", {}),
    "a base model on conversations": ("<|endoftext|>", "chat", {}),
    "without generation_config.json": ("<|im_end|>", "documents", {"generation_config.json": None}),
    "with another end in config.json": (
        "<|endoftext|>",
        "documents",
        {"generation_config.json": {"eos_token_id": 0}, "config.json": {"eos_token_id": 2}},
    ),
    "with an end that only the tokenizer names": (
        "<|im_end|>",
        "documents",
        {"generation_config.json": None, "config.json": {"eos_token_id": None}},
    ),
    "with several ends": (
        "<|im_end|>",
        "documents",
        {"generation_config.json": {"eos_token_id": [2, 5]}},
    ),
    "with special_tokens_map.json": (
        "<|im_end|>",
        "documents",
        {"special_tokens_map.json": {"eos_token": "<|im_end|>"}},
    ),
}
ROWS = {
    "documents": [{"text": text} for text in TEXTS],
    "chat": [
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]}
        for text in TEXTS
    ],
}


def check(folder, has_mistakes):
    for rows, lines in ROWS.items():
        (folder / f"{rows}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    yield from check_ids(folder, has_mistakes)
    yield from check_ends(folder, has_mistakes)


def write_folder(parent, name, model, eos_token):
    folder = shutil.copytree(write_model(model, parent), parent / name)
    write_tokenizer(folder, eos_token)
    return folder


def run_command(model, rows, out, program=None, **further):
    data = model.parent / f"{rows}.jsonl"
    if rows == "chat":
        data, lines = model / "chat.bin", data
        encode(model, lines, data, "--chat")
    return command(
        program or trainer("step0_single_gpu"),
        init_from=model,
        data=data,
        rows=rows,
        context=CONTEXT,
        out=out,
        **further,
    )


# ---- ids --------------------------------------------------------------------------------------------------------------


def set_config(folder, **values):
    edit_json(folder / "tokenizer_config.json", **values)


def without_config(folder):
    (folder / "tokenizer_config.json").unlink()


def as_pair(folder):
    """GPT-2's older files, whose pre-tokenizer is GPT-2's."""
    Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    without_config(folder)
    (folder / "added_tokens.json").write_text(
        json.dumps({special: i for i, special in enumerate(SPECIALS)})
    )


def taken_out(folder):
    """The added tokens, which tokenizer.json then has no longer."""
    taken = []
    edit_json(
        folder / "tokenizer.json",
        lambda file: {**file, "added_tokens": taken.extend(file["added_tokens"]) or []},
    )
    return taken


def with_added_file(folder):
    (folder / "added_tokens.json").write_text(
        json.dumps({token["content"]: token["id"] for token in taken_out(folder)})
    )


def with_prefix_space(folder):
    """Which tokenizer_config.json does not say, as transformers before version 5 expects it."""
    stage = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    edit_json(folder / "tokenizer.json", pre_tokenizer=stage)


def only_in_vocabulary(folder):
    """Nothing but the vocabulary knows <|endoftext|>."""
    taken_out(folder)
    without_config(folder)


def as_pair_without_default(folder):
    """A pair without the token that GPT2Tokenizer makes if it is not there."""
    as_pair(folder)
    for file in ("vocab.json", "added_tokens.json"):
        ids = json.loads((folder / file).read_text())
        ids["</s>"] = ids.pop(SPECIALS[0])
        (folder / file).write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
OFFSETS = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
BEGIN = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": SPECIALS[2], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
    "special_tokens": {SPECIALS[2]: {"id": SPECIALS[2], "ids": [2], "tokens": [SPECIALS[2]]}},
}


def set_tokenizer(folder, pattern=LLAMA3, behavior="Isolated", invert=False, **settings):
    """As files of the Hub have it that were made of tiktoken's patterns."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}
    stages = [split, {**OFFSETS, "add_prefix_space": False, "use_regex": False}]
    whole = {"type": "Sequence", "pretokenizers": stages}
    edit_json(folder / "tokenizer.json", pre_tokenizer=whole, **settings)
    set_config(folder, tokenizer_class="PreTrainedTokenizerFast")


def as_llama3(folder, post_processor=None):
    both = {"type": "Sequence", "processors": [OFFSETS, BEGIN]}
    set_tokenizer(folder, post_processor=post_processor or both)
    set_config(folder, bos_token=SPECIALS[2], pad_token=None)


def saved_again(folder):
    """With the post-processor and the names that this version of transformers writes."""
    as_llama3(folder)
    names = {"additional_special_tokens": [SPECIALS[1]], "add_bos_token": True}
    AutoTokenizer.from_pretrained(folder, **names).save_pretrained(folder)


def as_qwen2(folder):
    taken = taken_out(folder)
    word = {"id": VOCABULARY - 50, "content": "caf\u00e9", "special": False, "normalized": True}
    set_tokenizer(
        folder,
        LLAMA3.replace("{1,3}", ""),
        normalizer={"type": "NFC"},
        post_processor=OFFSETS,
        added_tokens=[*taken, {**taken[1], **word}],
    )


# What is done to a folder of SmolLM2's kind, whose class in transformers would build a
# pre-tokenizer of its own.
VARIANTS = {
    **{f"tokenizer_class {name}": partial(set_config, tokenizer_class=name) for name in (None, "GPT2Tokenizer", "LlamaTokenizer", "CodeGenTokenizer", "NoSuchTokenizer")},
    "no tokenizer_config.json": without_config,
    "vocab.json and merges.txt": as_pair,
    "added_tokens_decoder": lambda folder: set_config(folder, added_tokens_decoder={str(token.pop("id")): token for token in taken_out(folder)}),
    "added_tokens.json": with_added_file,
    "a space before": with_prefix_space,
    "<|endoftext|> only in the vocabulary": only_in_vocabulary,
    "vocab.json without <|endoftext|>": as_pair_without_default,
    "a source that adds a first and a last token": partial(set_config, add_bos_token=True, add_eos_token=True),
    "Llama 3's settings": as_llama3,
    "a first token alone": partial(as_llama3, post_processor=BEGIN),
    "saved again": saved_again,
    QWEN2_SETTINGS: as_qwen2,
    "GPT-4's settings": partial(set_tokenizer, behavior="Removed", invert=True),
    "additional_special_tokens": lambda folder: set_config(folder, additional_special_tokens=[token["content"] for token in taken_out(folder)]),
}  # fmt: skip


def check_ids(folder, has_mistakes):
    # transformers 5 reads text of a qwen2 model with Qwen 2's settings, whatever its folder says.
    other = [model for name, model in MODELS.items() if name != "Qwen2"]
    models = [
        MODELS["Qwen2"] if name == QWEN2_SETTINGS else other[i % len(other)]
        for i, name in enumerate(VARIANTS)
    ]
    models = [
        write_folder(folder, f"ids{i}", model, "<|im_end|>") for i, model in enumerate(models)
    ]
    for model, edit in zip(models, VARIANTS.values()):
        edit(model)
    outs, saids = (
        [folder / f"{model.name}_{what}" for model in models] for what in ("run", "said")
    )
    start(
        [
            run_command(model, "documents", out, steps=0, micro_batch_size=1)
            for model, out in zip(models, outs)
        ]
    )
    start(
        [
            run_command(
                model, "documents", said, LOGITS, order="sequential", micro_batch_size=len(TEXTS)
            )
            for model, said in zip(models, saids)
        ]
    )
    export([(name, out, out / "exported") for name, out in zip(VARIANTS, outs)])
    for name, said, out in zip(VARIANTS, saids, outs):
        yield Result(name, "tokens of all rows", difference_of_rows(said, out / "exported"))
    if has_mistakes:
        wrong = shutil.copytree(outs[0] / "exported", folder / "wrong_class")
        set_config(wrong, tokenizer_class="GPT2Tokenizer")
        yield Result(
            "tokenizer_class",
            "tokens of all rows",
            difference_of_rows(saids[0], wrong),
            mistake="it is GPT2Tokenizer",
        )


def difference_of_rows(said, exported):
    """How a run's rows differ from the texts and their ends by the exported tokenizer."""
    tokenizer, ours = AutoTokenizer.from_pretrained(exported), read_saved(said)
    ids, end = (
        [tokenizer(line["text"]).input_ids for line in ROWS["documents"]],
        tokenizer.eos_token_id,
    )
    rows = [row if row[-1] == end else [*row, end] for row in ids]
    filled = torch.tensor([row + (CONTEXT + 1 - len(row)) * [IGNORED] for row in rows])
    inputs = torch.where(
        filled[:, 1:] == IGNORED, IGNORED, filled[:, :-1]
    )  # nothing follows the last one
    tokens = torch.where(ours["targets"] == IGNORED, IGNORED, ours["tokens"])
    return max(
        largest_difference(tokens, inputs), largest_difference(ours["targets"], filled[:, 1:])
    )


# ---- ends -------------------------------------------------------------------------------------------------------------


def check_ends(folder, has_mistakes):
    outs = {name: folder / f"ends{i}_run" for i, name in enumerate(ENDS)}
    models = [write_edited(folder, f"ends{i}", *ENDS[name]) for i, name in enumerate(ENDS)]
    start(
        [
            run_command(model, ENDS[name][1], outs[name], steps=0, micro_batch_size=1)
            for name, model in zip(ENDS, models)
        ]
    )
    export([(name, out, out / "exported") for name, out in outs.items()])
    for name, out in outs.items():
        end = "<|im_end|>" if ENDS[name][1] == "chat" else "<|endoftext|>"
        yield Result(
            name,
            "the tokenizer's eos_token and the end of rows",
            AutoTokenizer.from_pretrained(out / "exported").eos_token != end,
        )
        for special in (SPECIALS[0], SPECIALS[2]):
            yield Result(
                name,
                f"what generate() writes until {special} and that",
                num_after(out / "exported", special),
            )
    if has_mistakes:
        edit_json(out / "exported/generation_config.json", eos_token_id=2)
        yield Result(
            name,
            "what generate() writes until <|endoftext|> and that",
            num_after(out / "exported", SPECIALS[0]),
            mistake="generation_config.json has another end",
        )


def write_edited(parent, name, eos_token, rows, edits):
    folder = write_folder(parent, name, MODELS["GPT-2"], eos_token)
    edit_json(folder / "generation_config.json", eos_token_id=SPECIALS.index(eos_token))
    for file, contents in edits.items():
        if file == "config.json":
            edit_json(folder / file, **contents)
            continue
        (folder / file).unlink(missing_ok=True)
        if contents:
            (folder / file).write_text(json.dumps(contents))
    return folder


def num_after(exported, special):
    """How many tokens generate() writes after the one at which it should stop, of a model that
    writes nothing else."""
    file, token = exported / "model.safetensors", SPECIALS.index(special)
    tensors = load_file(file)
    embedding = tensors["transformer.wte.weight"]
    embedding[SPECIALS.index(SPECIALS[0])], embedding[SPECIALS.index(SPECIALS[2])] = 0, 0
    embedding[token] = 1
    tensors["transformer.ln_f.weight"][:], tensors["transformer.ln_f.bias"][:] = 0, 1
    save_file(tensors, file, {"format": "pt"})
    tokenizer, model = (
        AutoTokenizer.from_pretrained(exported),
        AutoModelForCausalLM.from_pretrained(exported),
    )
    prompt = tokenizer("Hello", return_tensors="pt")
    written = model.generate(**prompt, max_new_tokens=8, do_sample=False)[
        0, prompt.input_ids.size(1) :
    ]
    return len(written) - 1 if written[0] == token else float("inf")
