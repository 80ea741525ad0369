"""./ladder encode: writes token ids of data, made by a tokenizer of any kind, for training.

It runs in .ladder/venv-encode, which has transformers."""

import argparse
import os
import sys
from pathlib import Path

from encoded import Rows, write
from encoder import Encoder
from lines import Conversations, Lines, Refusal, document_of

DESCRIPTION = """\
Makes token ids of DATA with the tokenizer of MODEL, a folder as the Hub serves it, and writes them to OUT.bin:

  ./ladder encode models/TinyLlama book.txt book.bin
  ./ladder train step4 --init-from models/TinyLlama --data book.bin

  ./ladder encode models/SmolLM2-135M-Instruct talks.jsonl talks.bin --chat --sample "How many cities?"
  ./ladder train step4 --init-from models/SmolLM2-135M-Instruct --data talks.bin --rows chat --sample "How many cities?"

  ./ladder encode models/SmolLM2-135M-Instruct pairs.jsonl pairs.bin --pairs
  ./ladder train objectives --objective dpo --init-from models/SmolLM2-135M-Instruct --data pairs.bin

Any tokenizer will do that transformers opens. OUT.bin keeps the tokenizer's files, so an export of the
run has them. Without options, DATA is documents: a .txt file is one, and a .jsonl file has one on each line."""


def encode_documents(encoder, path, lines, rows):
    texts = [Path(path).read_text("utf-8", "replace")] if path.endswith(".txt") else lines
    batch = []
    for text in texts:
        batch.append(text if isinstance(text, str) else document_of(text, lines))
        if len(batch) == 1000:
            for ids in encoder.documents(batch):
                rows.add(ids)
            batch = []
    for ids in encoder.documents(batch) if batch else ():
        rows.add(ids)
    return encoder.end


def encode_chat(encoder, lines, rows):
    reader, ends = Conversations(lines), {}
    for object in lines:
        messages, read = reader.of_line(object)
        tools = encoder.account_for(lines, object, read, messages)
        ids, mask = encoder.conversation(messages, tools)
        if not any(mask):
            lines.refuse(
                "no message is the assistant's with a weight of 1, so there is nothing to learn"
            )
        rows.add(ids, mask=mask)
        for id, learned, after in zip(ids, mask, [*mask[1:], 0]):
            if learned and not after:
                ends[id] = ends.get(id, 0) + 1
    return most_frequent(ends, encoder)


def encode_pairs(encoder, lines, rows):
    reader, ends, names = Conversations(lines), {}, ("chosen", "rejected")
    for object in lines:
        if not set(names) <= set(object):
            lines.refuse('has no "chosen" and "rejected"')
        answers = [reader.said(object[name], "assistant", name) for name in names]
        if answers[0] == answers[1]:
            lines.refuse(
                '"chosen" and "rejected" are equal, so neither is preferred; remove the line'
            )
        if "prompt" in object:
            prompt = reader.said(object["prompt"], "user", "prompt")
        else:  # both are whole conversations, which differ in their last message
            prompt = answers[0][:-1]
            if not prompt or answers[1][:-1] != prompt:
                lines.refuse(
                    'has no "prompt", and "chosen" and "rejected" do not begin with the same messages'
                )
            answers = [answer[-1:] for answer in answers]
        for name, answer in zip(names, answers):
            if [message["role"] for message in answer] != ["assistant"]:
                lines.refuse(f'"{name}" must be one message of the assistant\'s')
        tools = encoder.account_for(
            lines, object, ("prompt", *names), *(prompt + a for a in answers)
        )
        pieces = encoder.pair(prompt, tools, answers)
        rows.add(*pieces)
        for piece in pieces[1:]:
            ends[piece[-1]] = ends.get(piece[-1], 0) + 1
    return most_frequent(ends, encoder)


def most_frequent(ends, encoder):
    """The token that ends what the assistant says, if it is a special one."""
    end = max(ends, key=ends.get) if ends else encoder.end
    return end if end in encoder.special else encoder.end


def sample_of(encoder, text, kind):
    if text is None:
        return None
    if kind == "documents":
        first = encoder.end if encoder.begin is None else encoder.begin
        return {"text": text, "tokens": [first, *encoder.ids([text])[0]]}
    prompt = encoder.render([{"role": "user", "content": text}], None, is_open=True)
    return {"text": text, "tokens": encoder.ids([prompt])[0]}


def encode(arguments):
    kind = "chat" if arguments.chat else "pairs" if arguments.pairs else "documents"
    if not Path(arguments.data).is_file():
        raise Refusal(f"{arguments.data}: no such file")
    if os.path.exists(arguments.out):
        raise Refusal(f"{arguments.out}: exists; remove it, or choose another name")
    if not arguments.out.endswith(".bin"):
        raise Refusal(f"{arguments.out}: its name must end with .bin, by which a trainer knows it")
    if not arguments.data.endswith(".jsonl") and (
        kind != "documents" or not arguments.data.endswith(".txt")
    ):
        raise Refusal(
            f"{arguments.data}: a .jsonl file is read{'' if kind != 'documents' else ', or a .txt file'}"
        )
    encoder = Encoder(arguments.model)
    if kind != "documents":
        encoder.need_template()
    rows, lines = Rows(encoder.size), Lines(arguments.data)
    try:
        if kind == "documents":
            end = encode_documents(encoder, arguments.data, lines, rows)
        else:
            end = {"chat": encode_chat, "pairs": encode_pairs}[kind](encoder, lines, rows)
    except Refusal as problem:  # of a template or a tokenizer, which does not know the line
        is_placed = str(problem).startswith(str(lines.path))
        raise problem if is_placed else Refusal(f"{lines.place}: {problem}") from None
    if not rows.count:
        raise Refusal(f"{arguments.data}: has nothing to encode")
    sample = sample_of(encoder, arguments.sample, kind)
    write(arguments.out, rows, kind, encoder, end, sample, arguments.data)
    thing = {"documents": "document", "chat": "conversation", "pairs": "pair"}[kind]
    print(
        f"{arguments.out}: {rows.count:,} {thing}{'' if rows.count == 1 else 's'}, {len(rows.tokens):,} tokens"
        f"{f', of which {sum(rows.mask):,} are learned' if kind == 'chat' else ''}; a text ends with "
        f"{encoder.tokenizer.convert_ids_to_tokens(end)}"
    )
    if lines.ignored:
        print(f"ignored: {', '.join(sorted(lines.ignored))}")


def parser():
    parser = argparse.ArgumentParser(
        "./ladder encode",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="a folder with a tokenizer's files")
    parser.add_argument("data", metavar="DATA", help="a .jsonl or .txt file")
    parser.add_argument("out", metavar="OUT.bin", help="what is written; it must be new")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--chat",
        action="store_true",
        help="DATA is conversations (messages, ShareGPT's conversations, or prompt and completion), written in MODEL's "
        "chat template; only what the assistant says is learned",
    )
    kinds.add_argument(
        "--pairs",
        action="store_true",
        help="DATA is preference pairs: prompt, chosen and rejected, written in MODEL's chat template",
    )
    parser.add_argument(
        "--sample",
        metavar="TEXT",
        help="what --sample of the run may ask its model; kept in OUT.bin as well",
    )
    return parser


def main():
    try:
        encode(parser().parse_args())
    except (Refusal, OSError) as problem:
        print(f"encode: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
