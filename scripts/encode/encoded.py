"""The file that is written: docs/encoded_files.md."""

import json
import os
import sys
import time
from array import array
from pathlib import Path


class Rows:
    """Tokens, where things begin among them, and for conversations which are learned."""

    def __init__(self, size):
        self.tokens, self.starts, self.mask = (
            array("H" if size <= 65536 else "I"),
            array("q"),
            bytearray(),
        )
        self.count, self.last_said = 0, time.monotonic()

    def add(self, *pieces, mask=()):
        for piece in pieces:
            self.starts.append(len(self.tokens))
            self.tokens.extend(piece)
        self.mask.extend(mask)
        self.count += 1
        if time.monotonic() - self.last_said > 5:
            self.last_said = time.monotonic()
            print(f"encode: {self.count:,} so far, {len(self.tokens):,} tokens", file=sys.stderr)


def write(path, rows, kind, encoder, end, sample, data):
    texts, files = encoder.texts_of_tokens(), encoder.files(end)
    header = {
        "ladder_tokens": 1,
        "rows": kind,
        "source": str(encoder.folder),
        "data": str(data),
        "tokenizer": type(encoder.tokenizer).__name__,
        "vocab_size": encoder.size,
        "begin": encoder.begin,
        "end": end,
        "padding": encoder.padding(end),
        "special_tokens": {
            encoder.tokenizer.convert_ids_to_tokens(id): id for id in sorted(encoder.special)
        },
        "sample": sample,
        "num_starts": len(rows.starts),
        "num_tokens": len(rows.tokens),
        "token_bytes": rows.tokens.itemsize,
        "text_bytes": sum(map(len, texts)),
        "files": {name: len(files[name]) for name in sorted(files)},
    }
    line = json.dumps(header)
    line += " " * (-(len(line) + 1) % 8) + "\n"
    partial = Path(f"{path}.{os.getpid()}.partial")
    try:
        with open(partial, "xb") as file:
            file.write(line.encode())
            rows.starts.tofile(file)
            array("I", map(len, texts)).tofile(file)
            rows.tokens.tofile(file)
            file.write(bytes(rows.mask) if kind == "chat" else b"")
            file.writelines(texts)
            file.writelines(files[name] for name in sorted(files))
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            raise FileExistsError(f"{path}: has appeared meanwhile; {partial} is not kept")
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
