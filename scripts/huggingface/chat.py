"""What ./ladder encode writes of conversations and pairs: the tokens are those of a folder's chat
template, and what is learned is what transformers says of a template with {% generation %} marks."""

import json
import random
import shutil
import subprocess

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from huggingface.export import export
from huggingface.models import FAMILIES, edit_json, read_model, write_model
from huggingface.runs import (
    ENCODE,
    LOGITS,
    ROOT,
    Result,
    command,
    encode,
    largest_difference,
    read_saved,
    start,
    trainer,
)
from huggingface.training import curves_of

CONTEXT, VOCABULARY, IGNORED = 128, 600, -100  # the model's vocabulary; the tokenizer's is smaller
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Templates, with [[ and ]] around what is learned. SmolLM2's own, and others as the Hub has them.
DEFAULT = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
CHATML, CONTENT = (
    "{{ '<|im_start|>' + message['role'] + '\n' }}",
    "message['content'] + '<|im_end|>'",
)
NEWLINE = "{{ '\n' }}"


def template_of(said, first="", head=CHATML, tail="", shown=None, begun=OPEN, answer=""):
    learned = (
        f"[[{answer}{{{{ {said} }}}}]]{{% else %}}{{{{ {shown or said} }}}}{{% endif %}}{tail}"
    )
    each = f"{head}{{% if message['role'] == 'assistant' %}}{learned}"
    return f"{first}{{% for message in messages %}}{each}{{% endfor %}}{begun}"


SMOLLM2 = template_of(
    CONTENT,
    "{% if messages[0]['role'] != 'system' %}{{ '" + DEFAULT + "' }}{% endif %}",
    tail=NEWLINE,
)
TEMPLATES = {
    "SmolLM2's template": SMOLLM2,
    "trimmed, with a first token": template_of(
        "message['content'] | trim + '<|im_end|>'", "{{ bos_token }}"
    ),
    "another text in the middle": template_of(
        CONTENT, answer="{% if loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}", tail=NEWLINE
    ),
    "an opening that answers lack": template_of(
        CONTENT, begun=OPEN.replace("assistant\n", "assistant\n<think>\n")
    ),
    "an end of all": template_of(
        CONTENT, begun=OPEN.replace("{% endif", "{% else %}{{ eos_token }}{% endif")
    ),
    "as Llama 2": template_of(
        "' ' + message['content'] + eos_token",
        head="",
        shown="bos_token + '[INST] ' + message['content'] + ' [/INST]'",
        begun="",
    ),
    "nothing that ends an answer": template_of(
        "message['content'] + '\n'",
        head="{{ message['role'] + ': ' }}",
        begun="{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
    ),
}
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


def plain(template):
    return template.replace("[[", "").replace("]]", "")


def marked(template):
    return template.replace("[[", "{% generation %}").replace("]]", "{% endgeneration %}")


def check(folder, has_mistakes):
    conversations = [*map(messages_of, CONVERSATIONS), *random_conversations(200)]
    lines = [{"messages": messages} for messages in conversations]
    data = write_lines(folder / "chat.jsonl", lines)
    in_turn = [talk for talk in conversations if is_in_turn(talk)]
    turns = write_lines(folder / "turns.jsonl", [{"messages": talk} for talk in in_turn])
    model = write_model(FAMILIES[-1].reading("one that chats", VOCABULARY, CONTEXT), folder)
    write_tokenizer(model)
    for i, (name, change) in enumerate(TOKENIZERS.items()):
        changed = shutil.copytree(model, folder / f"cut{i}")
        change(changed)
        yield from check_rows(f"chat, {name}", changed, data, conversations, SMOLLM2)
    of_pieces = shutil.copytree(model, folder / "of_pieces")
    write_sentencepiece(of_pieces)
    for i, (name, template) in enumerate(TEMPLATES.items()):
        changed = with_template((of_pieces, model)[i % 2], folder / name, template)
        yield from check_rows(f"chat, {name}", changed, turns, in_turn, template)
    yield from check_other_lines(folder, model)
    yield from check_pairs(folder, model, of_pieces)
    yield from check_refusals(folder, model)
    yield from check_export(folder, data, of_pieces)
    if has_mistakes:
        longer = SMOLLM2.replace("]]{% else %}", "{{ '\n' }}]]{% else %}").replace(
            "{% endif %}{{ '\n' }}{% endfor", "{{ '\n' }}{% endif %}{% endfor"
        )
        for result in check_rows("chat", folder / "cut0", data, conversations, longer):
            if "targets" in result.what:
                yield result._replace(mistake="a newline is learnt, too")


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def is_in_turn(messages):
    """Whether the assistant does not speak first, or twice at once: not every template knows what to do."""
    roles = ["assistant", *(message["role"] for message in messages)]
    return all({"assistant"} != {*pair} for pair in zip(roles, roles[1:]))


def with_template(source, folder, template):
    shutil.copytree(source, folder)
    (folder / "chat_template.jinja").write_text(plain(template))
    return folder


def check_rows(name, model, data, conversations, template):
    """Of what a run reads, with what transformers makes of the same template."""
    encoded, out = model / f"{data.stem}.bin", model / "said"
    if not encoded.exists():
        encode(model, data, encoded, "--chat")
        start(
            [
                command(
                    LOGITS,
                    init_from=model,
                    data=encoded,
                    rows="chat",
                    order="sequential",
                    context=CONTEXT,
                    micro_batch_size=len(conversations),
                    out=out,
                )
            ]
        )
    ours, tokenizer = read_saved(out), PreTrainedTokenizerFast.from_pretrained(model)
    tokens, targets = rows_of(conversations, tokenizer, marked(template))
    yield Result(name, "tokens of all rows", largest_difference(ours["tokens"], tokens))
    yield Result(name, "targets of all rows", largest_difference(ours["targets"], targets))


def arrays_of(file):
    """(header, starts, tokens, mask), as docs/encoded_files.md describes them."""
    contents = file.read_bytes()
    place = contents.index(b"\n") + 1
    header = json.loads(contents[:place])

    def take(kind, count):
        nonlocal place
        array = np.frombuffer(contents, kind, count, place)
        place += array.nbytes
        return array.tolist()

    starts, _ = take("<i8", header["num_starts"]), take("<u4", header["vocab_size"])
    tokens = take(f"<u{header['token_bytes']}", header["num_tokens"])
    return header, starts, tokens, take("u1", len(tokens) if header["rows"] == "chat" else 0)


def check_other_lines(folder, model):
    """Other spellings of the same conversations have the same tokens and the same mask; a weight of 0 is not
    learned; what a template reads besides is there."""

    def read(name, lines, template=SMOLLM2):
        changed = with_template(model, folder / name, template)
        encode(changed, write_lines(changed / "a.jsonl", lines), changed / "a.bin", "--chat")
        return arrays_of(changed / "a.bin")[1:]

    def said(role, content, **more):
        return {"role": role, "content": content, **more}

    talk = [said("user", "Hi"), said("assistant", "Ho"), said("user", "?"), said("assistant", "!")]
    usual = read("usual", [{"messages": talk}, {"messages": talk[:2]}])
    names = {"user": "human", "assistant": "gpt"}
    sharegpt = [{"from": names[m["role"]], "value": m["content"]} for m in talk]
    both = [{"conversations": sharegpt}, {"prompt": "Hi", "completion": "Ho", "id": 7}]
    yield Result(
        "chat", "lines of ShareGPT, and of a prompt and a completion", read("other", both) != usual
    )
    weighted = [talk[0], {**talk[1], "weight": 0}, *talk[2:]]
    for name, template in (("weight", SMOLLM2), ("weight in marks", marked(SMOLLM2))):
        starts, tokens, mask = read(name, [{"messages": weighted}], template)
        learned = PreTrainedTokenizerFast.from_pretrained(model).decode(
            [t for t, m in zip(tokens, mask) if m]
        )
        yield Result("chat", f"what is learned with a {name} of 0", learned != "!<|im_end|>")
    tools = [{"name": "clock"}]
    called = [
        talk[0],
        said("assistant", None, tool_calls=[{"name": "clock"}]),
        said("tool", "12"),
        talk[3],
    ]
    said_or_called = "(message['content'] or message['tool_calls'][0]['name']) + '<|im_end|>'"
    reads_tools = template_of(said_or_called, "{% if tools %}{{ tools[0]['name'] }}{% endif %}")
    starts, tokens, mask = read("tools", [{"messages": called, "tools": tools}], reads_tools)
    wanted = "clock<|im_start|>user\nHi<|im_end|><|im_start|>assistant\nclock<|im_end|><|im_start|>tool\n12<|im_end|>"
    text = PreTrainedTokenizerFast.from_pretrained(model).decode(tokens)
    yield Result("chat", "a call of a tool", text != f"{wanted}<|im_start|>assistant\n!<|im_end|>")
    learned = PreTrainedTokenizerFast.from_pretrained(model).decode(
        [t for t, m in zip(tokens, mask) if m]
    )
    yield Result("chat", "what is learned of a call", learned != "clock<|im_end|>!<|im_end|>")


def check_pairs(folder, *models):
    lines = [
        {"prompt": said[-2], "chosen": said[-1], "rejected": f"not {said[-1]}"}
        for said in CONVERSATIONS[:6]  # no row is cut
    ]
    for i, model in enumerate(models):
        changed = with_template(model, folder / f"pairs{i}", SMOLLM2)
        encode(changed, write_lines(changed / "a.jsonl", lines), changed / "a.bin", "--pairs")
        _, starts, tokens, _ = arrays_of(changed / "a.bin")
        pieces = [tokens[a:b] for a, b in zip(starts, [*starts[1:], len(tokens)])]
        tokenizer, wrong = PreTrainedTokenizerFast.from_pretrained(changed), 0
        for line, prompt, *answers in zip(lines, pieces[::3], pieces[1::3], pieces[2::3]):
            user = {"role": "user", "content": line["prompt"]}
            shown = tokenizer.apply_chat_template([user], add_generation_prompt=True).input_ids
            wrong += not len(shown) - 1 <= len(prompt) <= len(shown)
            for kind, answer in zip(("chosen", "rejected"), answers):
                whole = [user, {"role": "assistant", "content": line[kind]}]
                text = tokenizer.apply_chat_template(whole, tokenize=False).removesuffix("\n")
                wrong += tokenizer(text, add_special_tokens=False).input_ids != prompt + answer
        yield Result(f"pairs {i}", "tokens of prompts and answers", wrong)
        out = folder / f"pairs{i}_run"
        start([dpo_command(changed, len(lines), out)])
        theirs = train_dpo(changed, pieces)
        yield Result(
            f"pairs {i}",
            "losses and norms of DPO",
            largest_difference(curves_of(out), theirs),
            2e-5,
        )


DPO = {"steps": 6, "lr": 1e-4, "eps": 1e-5, "weight_decay": 0}


def dpo_command(model, num_pairs, out):
    """One command: the folder is where the model starts from, and the reference."""
    return command(
        trainer("objectives"),
        objective="dpo",
        init_from=model,
        data=model / "a.bin",
        order="sequential",
        context=CONTEXT,
        micro_batch_size=num_pairs,
        num_microbatches=1,
        lr_schedule="constant",
        clip_norm=0,
        out=out,
        **DPO,
    )


def train_dpo(model, pieces):
    """The losses and gradient norms of a loop in PyTorch."""
    policy, reference = (read_model(model) for _ in range(2))
    adamw = {"lr": DPO["lr"], "eps": DPO["eps"], "weight_decay": 0, "betas": (0.9, 0.95)}
    optimizer, curves = torch.optim.AdamW(policy.parameters(), **adamw), []

    def margins(model):
        return torch.stack(
            [
                log_prob(model, prompt, chosen) - log_prob(model, prompt, rejected)
                for prompt, chosen, rejected in zip(pieces[::3], pieces[1::3], pieces[2::3])
            ]
        )

    with torch.no_grad():
        at_start = margins(reference)
    for _ in range(DPO["steps"]):
        optimizer.zero_grad()
        loss = -F.logsigmoid(0.1 * (margins(policy) - at_start)).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), float("inf"))
        optimizer.step()
        curves.append([loss.item(), norm.item()])
    return torch.tensor(curves)


def log_prob(model, prompt, answer):
    row = torch.tensor([[*prompt, *answer]])
    logits = model(row[:, :-1]).logits[0, len(prompt) - 1 :]
    return -F.cross_entropy(logits, row[0, len(prompt) :], reduction="sum")


def check_refusals(folder, model):
    """Each is told in one line what is wrong, and where, and nothing is written."""
    answer = {"role": "assistant", "content": "a"}

    def line(*messages, **more):
        return {"messages": [*messages, answer], **more}

    user = {"role": "user", "content": "u"}
    wrong = {
        "what says how much counts": (line(user, loss_weight=0.5), '"loss_weight"'),
        "a member that no template reads": (
            line({**user, "reasoning_content": "r"}),
            "reasoning_content",
        ),
        "an unknown role": (line({"role": "cat", "content": "m"}), '"cat"'),
        "a message without text": (line({"role": "user", "content": ["parts"]}), '"content"'),
        "nothing to learn": ({"messages": [user]}, "nothing to learn"),
        "a document": ({"text": "t"}, 'has no "messages"'),
    }
    for i, (name, (bad, expected)) in enumerate(wrong.items()):
        data = write_lines(folder / f"wrong{i}.jsonl", [line(user), bad])
        out = data.with_suffix(".bin")
        done = subprocess.run([*ENCODE, model, data, out, "--chat"], text=True, capture_output=True)
        is_told = f"{data}:2: " in done.stderr and expected in done.stderr
        is_short = done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout
        is_clean = not out.exists() and not [*folder.glob(f"{out.name}*")]
        yield Result("chat", f"the refusal of {name}", not (is_told and is_short and is_clean))


def check_export(folder, data, model):
    """The tokenizer of an export is the folder's own, as it was before; its chat template, too."""
    encoded = model / "exported.bin"
    encode(model, data, encoded, "--chat")
    start(
        [
            command(
                trainer("step0_single_gpu"),
                init_from=model,
                data=encoded,
                rows="chat",
                context=CONTEXT,
                micro_batch_size=1,
                steps=0,
                out=folder / "pieces_run",
            )
        ]
    )
    export([("chat", folder / "pieces_run", folder / "pieces_exported")])
    ids = []
    both = (PreTrainedTokenizerFast, model), (AutoTokenizer, folder / "pieces_exported")
    for tokenizer in (kind.from_pretrained(source) for kind, source in both):
        talks = [
            tokenizer.apply_chat_template(messages_of(said)).input_ids for said in CONVERSATIONS
        ]
        ids.append(
            (
                talks,
                tokenizer([" two  words\n", "e\u0301 🙂 <0x41>", "</s> and <|im_end|>"]).input_ids,
            )
        )
    yield Result("chat", "ids of texts and conversations of an export", ids[0] != ids[1])


BYTE_LEVEL = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def without_t(file):
    """A vocabulary that lacks a byte of "assistant". Every merge with it goes, too. (Without a
    newline, `tokenizers` itself would be wrong about the spaces behind it: its offsets do not count
    a byte that has no token.)"""
    model = file["model"]
    model["merges"] = [merge for merge in model["merges"] if "t" not in "".join(merge)]
    model["vocab"]["no letter"] = model["vocab"].pop("t")


def edited(change):
    """Does this to a folder's tokenizer.json. The class is one that reads it as it is."""

    def edit(folder):
        file = json.loads((folder / "tokenizer.json").read_text())
        change(file)
        (folder / "tokenizer.json").write_text(json.dumps(file))
        edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")

    return edit


def set_pre_tokenizer(*stages):
    whole = {"type": "Sequence", "pretokenizers": [*stages]} if len(stages) > 1 else stages[0]
    return edited(lambda file: file.update(pre_tokenizer=whole))


# How text is cut decides which token the newline of a header is a part of.
TOKENIZERS = {
    "SmolLM2's tokenizer": lambda folder: None,
    "a space before": set_pre_tokenizer({**BYTE_LEVEL, "add_prefix_space": True}),
    "a space before, digits": set_pre_tokenizer(DIGITS, {**BYTE_LEVEL, "add_prefix_space": True}),
    "a space before, no pattern": set_pre_tokenizer(
        {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": False}
    ),
    "no t": edited(without_t),
    "normal form C": edited(lambda file: file.update(normalizer={"type": "NFC"})),
}


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
        chat_template=plain(SMOLLM2),
    )
    whole.save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    edit_json(folder / "config.json", bos_token_id=1, eos_token_id=SPECIALS.index(eos_token))
    edit_json(folder / "generation_config.json", bos_token_id=1)
    return whole


def write_sentencepiece(folder):
    """A tokenizer of Llama 2's kind: pieces with a mark for a space, and bytes for what no piece has."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *SPECIALS[1:]]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 50,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator([(ROOT / "docs/glossary.md").read_text()], trainer)
    adds = [("<s>", 1)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", adds)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        unk_token="<unk>",
    )
    whole.add_special_tokens({"extra_special_tokens": SPECIALS[1:]})
    for name in ("special_tokens_map.json", "added_tokens.json", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    whole.save_pretrained(folder)
    edit_json(folder / "config.json", bos_token_id=1, eos_token_id=2)


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
