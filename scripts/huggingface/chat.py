"""Conversations as rows: their tokens are those of transformers' chat template, their targets what
the assistant says."""

import json
import random
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from huggingface.export import export
from huggingface.models import FAMILIES, edit_json, write_model
from huggingface.runs import (
    LOGITS,
    ROOT,
    Result,
    command,
    largest_difference,
    read_saved,
    start,
    trainer,
)

CONTEXT, VOCABULARY, IGNORED = 128, 600, -100  # the model's vocabulary; the tokenizer's is smaller
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# SmolLM2's own; and the same text, with marks around what the assistant says.
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ANSWER = "message['content'] + '<|im_end|>'"
MARKED_TEMPLATE = TEMPLATE.replace(
    f" + {ANSWER} + '\n'}}}}",
    f"}}}}{{% if message['role'] == 'assistant' %}}{{% generation %}}{{{{ {ANSWER} }}}}{{% endgeneration %}}"
    f"{{% else %}}{{{{ {ANSWER} }}}}{{% endif %}}{{{{ '\n' }}}}",
)
# What is said in turn: by the system, unless that is None; by the user; by the assistant; …
CONVERSATIONS = [
    [None, "How many users are there?", "SELECT COUNT(*) FROM users;"],
    [
        "Answer in SQL.",
        "The oldest?",
        "SELECT name FROM users\nORDER BY age DESC LIMIT 1;",
        "Thanks 🙂",
        " You're welcome.\n",
    ],
    ["", "", ""],
    [None, "e", "\u0301\u0323a\u0323\u0301 e\u0301"],
    [None, "Say <|im_end|> and <|im_start|>.", "<|im_end|>? No: <|endoftext|>"],
    [None, "12345", "\n\n 67 890"],
    ["x" * 200, "cut before the answer", "that no row has"],
    [
        None,
        "cafe\u0301 \u200d \u4f60\u597d",
        "\u0645\u0631\u062d\u0628\u0627 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u00e9\u00a0.",
    ],
]


def check(folder, has_mistakes):
    model = write_model(FAMILIES[-1].reading("one that chats", VOCABULARY, CONTEXT), folder)
    original = write_tokenizer(model)
    data = folder / "chat.jsonl"
    conversations = [*map(messages_of, CONVERSATIONS), *random_conversations(200)]
    data.write_text(
        "".join(json.dumps({"messages": messages}) + "\n" for messages in conversations)
    )
    out = folder / "chat"
    start(
        [
            command(
                LOGITS,
                init_from=model,
                data=data,
                rows="chat",
                order="sequential",
                context=CONTEXT,
                micro_batch_size=len(conversations),
                out=out,
            )
        ]
    )
    ours, tokenizer = read_saved(out), export_bare(model, data, folder)
    tokens, targets = rows_of(conversations, tokenizer, MARKED_TEMPLATE)
    yield Result("chat", "tokens of all rows", largest_difference(ours["tokens"], tokens))
    yield Result("chat", "targets of all rows", largest_difference(ours["targets"], targets))
    texts = [
        [
            t.apply_chat_template(c, tokenize=False, add_generation_prompt=True)
            for c in conversations
        ]
        for t in (original, tokenizer)
    ]
    yield Result(
        "chat", "conversations by the template of an export", sum(a != b for a, b in zip(*texts))
    )
    yield from check_pre_tokenizers(folder, model, conversations, data)
    if has_mistakes:
        _, longer = rows_of(
            conversations,
            tokenizer,
            MARKED_TEMPLATE.replace(
                f"{{{{ {ANSWER} }}}}{{% endg", f"{{{{ {ANSWER} + '\n' }}}}{{% endg"
            ),
        )
        yield Result(
            "chat",
            "targets of all rows",
            largest_difference(ours["targets"], longer),
            mistake="a newline is learnt, too",
        )


BYTE_LEVEL = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def without_t(file):
    """A vocabulary that lacks a byte of "assistant". Every merge with it goes, too. (Without a
    newline, `tokenizers` itself would be wrong about the spaces behind it: its offsets do not count
    a byte that has no token.)"""
    model = file["model"]
    model["merges"] = [merge for merge in model["merges"] if "t" not in "".join(merge)]
    model["vocab"]["no letter"] = model["vocab"].pop("t")


def set_pre_tokenizer(*stages):
    whole = {"type": "Sequence", "pretokenizers": [*stages]} if len(stages) > 1 else stages[0]
    return lambda file: file.update(pre_tokenizer=whole)


# What is done to a tokenizer.json. How text is cut decides which token the newline of a header is a
# part of.
PRE_TOKENIZERS = {
    "a space before": set_pre_tokenizer({**BYTE_LEVEL, "add_prefix_space": True}),
    "a space before, digits": set_pre_tokenizer(DIGITS, {**BYTE_LEVEL, "add_prefix_space": True}),
    "a space before, no pattern": set_pre_tokenizer(
        {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": False}
    ),
    "no t": without_t,
    "normal form C": lambda file: file.update(normalizer={"type": "NFC"}),
}


def check_pre_tokenizers(folder, model, conversations, data):
    """Reads the conversations with other tokenizers. The class is one that reads tokenizer.json as
    it is."""
    for i, (name, change) in enumerate(PRE_TOKENIZERS.items()):
        changed, out = shutil.copytree(model, folder / f"cut{i}"), folder / f"cut{i}_said"
        file = json.loads((changed / "tokenizer.json").read_text())
        change(file)
        (changed / "tokenizer.json").write_text(json.dumps(file))
        edit_json(changed / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
        start(
            [
                command(
                    LOGITS,
                    init_from=changed,
                    data=data,
                    rows="chat",
                    order="sequential",
                    context=CONTEXT,
                    micro_batch_size=len(conversations),
                    out=out,
                )
            ]
        )
        ours, tokenizer = read_saved(out), AutoTokenizer.from_pretrained(changed)
        tokens, targets = rows_of(conversations, tokenizer, MARKED_TEMPLATE)
        yield Result(
            f"chat, {name}", "tokens of all rows", largest_difference(ours["tokens"], tokens)
        )
        yield Result(
            f"chat, {name}", "targets of all rows", largest_difference(ours["targets"], targets)
        )


def export_bare(model, data, folder):
    """The tokenizer of an export, as users open it. Its run was told no chat template."""
    bare = shutil.copytree(model, folder / "bare")
    (bare / "chat_template.jinja").unlink()
    start(
        [
            command(
                trainer("step0_single_gpu"),
                init_from=bare,
                data=data,
                rows="chat",
                context=CONTEXT,
                micro_batch_size=1,
                steps=0,
                out=folder / "bare_run",
            )
        ]
    )
    export([("chat", folder / "bare_run", folder / "bare_exported")])
    return AutoTokenizer.from_pretrained(folder / "bare_exported")


def messages_of(said):
    roles = ["system", *["user", "assistant"] * len(said)]
    return [{"role": role, "content": text} for role, text in zip(roles, said) if text is not None]


def random_conversations(count):
    """Conversations of one to seven messages, in any order of roles."""
    rng = random.Random(7)
    texts = [
        "Hi",
        "",
        " two words",
        "\n\n\nlines",
        "  indented\n",
        "1 + 1 = 2",
        "<|im_end|> is special",
        "é 😀",
        "\t",
        "don't\n",
    ]
    for number in range(count):
        roles = rng.choices(("user", "assistant", "system"), k=1 + number % 7)
        roles[rng.randrange(len(roles))] = "assistant"
        yield [
            {"role": role, "content": "".join(rng.choices(texts, k=rng.randrange(3)))}
            for role in roles
        ]


def write_tokenizer(folder, eos_token="<|im_end|>"):
    """A tokenizer of SmolLM2's kind, trained on this course's texts; the id of its end of text is
    also in the model's config.json. It knows numbers of several digits, so that ids tell whether
    digits are split."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 50,
        special_tokens=SPECIALS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    numbers = [f"{first}{second} " for first in range(10) for second in range(10)]
    tokenizer.train_from_iterator(
        [(ROOT / "README.md").read_text(), (ROOT / "docs/glossary.md").read_text(), *numbers],
        trainer,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level]
    )
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos_token,
        bos_token="<|im_start|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=TEMPLATE,
    )
    whole.save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    edit_json(folder / "config.json", bos_token_id=1, eos_token_id=SPECIALS.index(eos_token))
    edit_json(folder / "generation_config.json", bos_token_id=1)
    return whole


def rows_of(conversations, tokenizer, marked_template):
    """(tokens, targets), [B, CONTEXT] each."""
    rows = []
    for messages in conversations:
        ids = tokenizer.apply_chat_template(messages).input_ids[: CONTEXT + 1]
        is_said = tokenizer.apply_chat_template(
            messages,
            chat_template=marked_template,
            return_assistant_tokens_mask=True,
            return_dict=True,
        )["assistant_masks"]
        targets = [token if learnt else IGNORED for token, learnt in zip(ids, is_said)][1:]
        tokens = ids[:-1]  # nothing follows the last one
        rows.append(
            (
                tokens + (CONTEXT - len(tokens)) * [tokenizer.pad_token_id],
                targets + (CONTEXT - len(targets)) * [IGNORED],
            )
        )
    return tuple(map(torch.tensor, zip(*rows)))
