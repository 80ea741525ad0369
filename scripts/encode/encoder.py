"""Token ids of texts, conversations and preference pairs, by the tokenizer and the chat template of a folder."""

import json
import os
import re
from functools import cache
from pathlib import Path

from lines import OF_LINE, OF_MESSAGE, Refusal

FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "vocab.txt", "tekken.json", "spiece.model", "sentencepiece.bpe.model",
    "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
MARK = "\ue000"  # no text has it


def open_tokenizer(folder):
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="true"
    )
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    if not Path(folder).is_dir():
        raise Refusal(
            f"{folder}: no such folder. A model of the Hub is fetched with: hf download {folder} --local-dir models/"
            f"{Path(folder).name}"
        )
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    # AutoTokenizer of transformers 5 builds a pre-tokenizer of its own for some classes, GPT2Tokenizer among them.
    # This class reads tokenizer.json as it is, as models were trained with it.
    is_written = (Path(folder) / "tokenizer.json").exists()
    try:
        return (PreTrainedTokenizerFast if is_written else AutoTokenizer).from_pretrained(folder)
    except Exception as error:  # of any library that a tokenizer may need
        raise Refusal(
            f"{folder}: transformers cannot open its tokenizer: {str(error).strip().splitlines()[0]}"
        ) from None


class Encoder:
    """Token ids of texts, of conversations and of preference pairs."""

    def __init__(self, folder):
        self.folder, self.tokenizer = folder, open_tokenizer(folder)
        self.template = self.tokenizer.chat_template
        if isinstance(self.template, dict):
            self.template = self.template.get("default")
        self.is_marked = re.search(r"{%-?\s*generation", self.template or "") is not None
        self.vocabulary = self.tokenizer.get_vocab()
        self.size = max(self.vocabulary.values()) + 1
        added = self.tokenizer.added_tokens_decoder
        self.special = {id for id, token in added.items() if token.special}
        self.special |= {*self.tokenizer.all_special_ids}
        both, bare = (
            self.tokenizer("a", add_special_tokens=flag).input_ids for flag in (True, False)
        )
        before = next(
            i
            for i in range(len(both))
            if both[i : i + len(bare)] == bare or i + len(bare) > len(both)
        )
        first, last = both[:before], both[before + len(bare) :]
        if len(first) > 1 or len(last) > 1:
            raise Refusal(
                f"{folder}: its tokenizer adds {both} around {bare}, more than a token on a side"
            )
        self.begin = first[0] if first else None
        self.end = (
            last[0] if last else self.vocabulary.get("<|endoftext|>", self.tokenizer.eos_token_id)
        )
        if self.end is None:
            raise Refusal(
                f'{folder}: its tokenizer names no token that ends a text: add an "eos_token" to tokenizer_config.json'
            )

    def need_template(self):
        if not self.template:
            raise Refusal(
                f"{self.folder}: has no chat template, so nobody says how a conversation is written. Take the folder of "
                "an instruct model, or add its chat_template.jinja"
            )
        if not self.tokenizer.is_fast:
            raise Refusal(
                f"{self.folder}: its tokenizer does not say where in a text a token comes from"
            )

    def ids(self, texts):
        return self.tokenizer(texts, add_special_tokens=False).input_ids

    def documents(self, texts):
        for ids in self.ids(texts):
            begins = self.begin is not None and ids[:1] != [self.begin]
            ids = [self.begin, *ids] if begins else ids
            yield ids if ids[int(begins) :][-1:] == [self.end] else [*ids, self.end]

    # ---- conversations

    def render(self, messages, tools=None, is_open=False):
        try:
            return self.tokenizer.apply_chat_template(
                without(messages, "weight"),
                tools=tools,
                tokenize=False,
                add_generation_prompt=is_open,
            )
        except Exception as error:  # a template raises its own for what it does not take
            raise Refusal(f"the chat template refuses it: {str(error).splitlines()[0]}") from None

    def account_for(self, lines, object, read, *conversations):
        """Returns the tools of a line. What else the line and its messages have must be read by the template, which
        then renders something else without it, or be harmless."""
        tools = object.get("tools") or None
        if tools and not isinstance(tools, list):
            lines.refuse('"tools" must be a list')
        whole = [self.render(messages, tools) for messages in conversations]
        if tools and self.renders(whole, conversations, None):
            tools = None
        lines.account_for(object, (*read, "tools") if tools else read, OF_LINE)
        said = [message for messages in conversations for message in messages]
        for name in {name for message in said for name in message} - {"role", "content", "weight"}:
            if self.renders(whole, [without(c, name) for c in conversations], tools):
                for message in said:
                    lines.account_for({name: message.get(name)}, (), OF_MESSAGE, "messages[].")
        return tools

    def renders(self, whole, conversations, tools):
        """Whether these give the same texts."""
        try:
            return whole == [self.render(messages, tools) for messages in conversations]
        except Refusal:  # the template needs what is left out
            return False

    def answer_span(self, whole, messages, tools, i):
        """Where the assistant's message i is in `whole`, with what ends it. The whole must begin with the conversation
        before it, up to where the assistant is to speak."""
        before = self.render(messages[:i], tools, is_open=True) if i else self.first_words(whole)
        if not whole.startswith(before):  # which opens with what is not kept, such as <think>
            said = [*messages[:i], {"role": "assistant", "content": MARK}]
            before = self.render(said, tools).partition(MARK)[0]
        until, (behind, closing) = self.render(messages[: i + 1], tools), self.behind_an_answer()
        if whole.startswith(before) and until.startswith(before):
            if whole.startswith(until) and until.endswith(behind):
                return len(before), len(until) - len(behind) + len(closing)
            if whole.startswith(until):
                return len(before), len(before) + self.special_ends(until[len(before) :])[-1]
            said = messages[i]["content"] or ""  # which is written otherwise in the middle
            for closed in (said + closing, said.strip() + closing):
                place = whole.find(closed, len(before))
                if place >= 0:
                    return len(before), place + len(closed)
        raise Refusal(
            f"messages[{i}]: the chat template writes what comes before otherwise if the conversation ends here, so it "
            "cannot be told which tokens the assistant says; {% generation %} in the template would say so"
        )

    def first_words(self, whole):
        """What comes before the assistant where nobody has spoken yet."""
        user = [{"role": "user", "content": "a"}]
        opening = self.render(user, is_open=True).removeprefix(self.render(user))
        before, opening, _ = whole.partition(opening) if opening else (whole, "", "")
        return before + opening

    @cache
    def behind_an_answer(self):
        """What a template writes behind an answer, and how much of that ends it: all up to the first special token, and
        not the newline after that."""
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": MARK}]
        behind = self.render(said).rpartition(MARK)[2]
        return behind, behind[: self.special_ends(behind)[0]]

    def special_ends(self, text):
        """Where special tokens end in a text; if there are none, where it ends."""
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        both = zip(encoding.input_ids, encoding.offset_mapping)
        return [end for id, (_, end) in both if id in self.special] or [len(text)]

    def conversation(self, messages, tools):
        """(ids, mask). What is learned is all that the assistant says, and what ends it."""
        whole = self.render(messages, tools)
        encoding = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        mask = [0] * len(encoding.input_ids)
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not self.is_marked:
            for i in answers:
                if messages[i].get("weight") != 0:
                    self.fill(mask, encoding, self.answer_span(whole, messages, tools, i), 1)
            return encoding.input_ids, mask
        marked = self.tokenizer.apply_chat_template(
            without(messages, "weight"),
            tools=tools,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        mask = list(marked["assistant_masks"])
        for i in answers:
            if messages[i].get("weight") == 0:
                self.fill(mask, encoding, self.answer_span(whole, messages, tools, i), 0)
        return encoding.input_ids, mask

    @staticmethod
    def fill(mask, encoding, span, value):
        """A token belongs to the span if any of its characters does."""
        inside = [
            i
            for i, (begin, end) in enumerate(encoding.offset_mapping)
            if begin < span[1] and end > span[0]
        ]
        if inside:
            mask[inside[0] : inside[-1] + 1] = [value] * (inside[-1] + 1 - inside[0])

    def pair(self, prompt, tools, answers):
        """The ids of the prompt, of the chosen answer, and of the rejected one."""
        start = self.render(prompt, tools, is_open=True)
        texts = []
        for answer in answers:
            messages = [*prompt, *answer]
            whole = self.render(messages, tools)
            texts.append(whole[: self.answer_span(whole, messages, tools, len(messages) - 1)[1]])
            if not whole.startswith(start):
                raise Refusal("the chat template writes the prompt otherwise if an answer follows")
        rows = [
            self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            for text in texts
        ]
        # A token that is partly of the answer belongs to it.
        shown = [sum(end <= len(start) for _, end in row.offset_mapping) for row in rows]
        prompt = os.path.commonprefix([row.input_ids[:count] for row, count in zip(rows, shown)])
        return [prompt, *(row.input_ids[len(prompt) :] for row in rows)]

    # ---- what a run needs of the tokenizer

    def texts_of_tokens(self):
        """The bytes that each token stands for; a special one stands for none."""
        tokenizer, texts = self.tokenizer, [b""] * self.size
        model = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
        is_byte_level = '"ByteLevel"' in json.dumps(model.get("decoder"))
        added = {token["id"]: token for token in model.get("added_tokens", ())}
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        letters = {letter: byte for byte, letter in bytes_to_unicode().items()}  # GPT-2's alphabet
        for token, id in self.vocabulary.items():
            if id in self.special or id in (self.begin, self.end):
                continue
            if id in added:
                texts[id] = added[id]["content"].encode()
            elif is_byte_level and all(letter in letters for letter in token):
                texts[id] = bytes(letters[letter] for letter in token)
            elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                texts[id] = bytes([int(token[3:5], 16)])
            else:
                texts[id] = token.replace("\u2581", " ").encode()
        return texts

    def padding(self, end):
        pad = self.tokenizer.pad_token_id
        return end if pad is None else pad

    def files(self, end):
        """The tokenizer's files as an export of the run is to have them: what ended its rows ends a text."""
        folder, files = Path(self.folder), {}
        for name in FILES:
            if (folder / name).is_file():
                files[name] = (folder / name).read_bytes()
        written = self.tokenizer.convert_ids_to_tokens(end)
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            settings = settings_in(folder / name)
            is_named = name == "tokenizer_config.json" or "eos_token" in settings
            if is_named and self.tokenizer.eos_token_id != end:
                settings["eos_token"] = written
            if name == "tokenizer_config.json" and "tokenizer.json" in files:
                settings["tokenizer_class"] = "PreTrainedTokenizerFast"
            if isinstance(settings.get("extra_special_tokens"), list):  # version 4 expects no list
                settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
            if settings:
                files[name] = as_file(settings)
        settings, config = (
            settings_in(folder / name) for name in ("generation_config.json", "config.json")
        )
        ends = [end]
        for more in (
            settings.get("eos_token_id"),
            config.get("eos_token_id"),
            self.tokenizer.eos_token_id,
        ):
            ends += [
                id for id in (more if isinstance(more, list) else [more]) if id not in (None, *ends)
            ]
        for kind in ("bos", "pad"):
            name, own = f"{kind}_token_id", getattr(self.tokenizer, f"{kind}_token_id")
            settings[name] = next(
                (id for id in (settings.get(name), config.get(name), own) if id is not None),
                self.padding(end) if kind == "pad" else None,
            )
        settings["eos_token_id"] = ends if len(ends) > 1 else end
        files["generation_config.json"] = as_file(settings)
        return files


def without(messages, name):
    return [{k: v for k, v in message.items() if k != name} for message in messages]


def settings_in(path):
    try:
        return json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError as error:
        raise Refusal(f"{path}: not valid JSON: {error}") from None


def as_file(settings):
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
