"""What this version of transformers finds in an exported folder, and what the gguf package finds.

    python -m huggingface.opened REQUEST.json RESULT.pt

The part servers imports this file, and runs it in .ladder/venv-huggingface-4 as well.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = (37 * torch.arange(64) % 258).view(2, 32)  # the smallest exported model can read them
SPECIAL = ("bos", "eos", "pad")


def find(read, *arguments):
    """What it finds, by name; or the first of the errors that ended it."""
    try:
        return read(*arguments)
    except Exception as error:
        while error.__context__:  # version 4 then tries what needs other packages
            error = error.__context__
        return {"error": repr(error)}


def has_tokenizer(folder):
    return any((folder / file).exists() for file in ("tokenizer.json", "vocab.json"))


@torch.no_grad()
def read_folder(folder, texts, conversations):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values()), f"names that are missing or left over: {info}"
    found = {
        "logits": model.eval()(ROWS).logits,
        "special tokens of config.json": ids_of(model.config),
        "special tokens of generate()": ids_of(model.generation_config),
    }
    return found | (read_tokenizer(folder, texts, conversations) if has_tokenizer(folder) else {})


def ids_of(settings):
    return {kind: getattr(settings, f"{kind}_token_id") for kind in SPECIAL}


def read_tokenizer(folder, texts, conversations):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids, template = [tokenizer(text).input_ids for text in texts], tokenizer.chat_template
    model = tokenizer.backend_tokenizer.to_str()
    return {
        "ids": ids,
        "texts": [tokenizer.decode(row) for row in ids],
        "tokens": tokenizer.convert_ids_to_tokens(range(len(tokenizer))),
        "conversations": [
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answers)
            for messages in conversations
            for answers in (False, True)
            if template
        ],
        "vocabulary": {
            **ids_of(tokenizer),
            "adds bos": all(row[:1] == [tokenizer.bos_token_id] for row in ids),
            "adds eos": all(row[-1:] == [tokenizer.eos_token_id] for row in ids),
            "chat template": template,
            "merges": [" ".join(pair) for pair in json.loads(model)["model"]["merges"]],
        },
    }


def read_vocabulary(folder):
    """As the "vocabulary" of read_tokenizer(), for llama.cpp."""
    import gguf  # only .ladder/venv-huggingface-4 has it

    special = gguf.SpecialVocab(folder, load_merges=True)
    return {
        **{kind: special.special_token_ids.get(kind) for kind in SPECIAL},
        "adds bos": special.add_special_token.get("bos", False),
        "adds eos": special.add_special_token.get("eos", False),
        "chat template": special.chat_template,
        "merges": special.merges,
    }


def main(request, result):
    folders, *asked = json.loads(Path(request).read_text())
    found = [
        (
            find(read_folder, folder, *asked),
            find(read_vocabulary, folder) if has_tokenizer(folder) else {},
        )
        for folder in map(Path, folders)
    ]
    torch.save(found, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
