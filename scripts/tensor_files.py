"""Reads and writes model.safetensors (docs/checkpoint.md), of fp32 tensors: {name: (shape, bytes of
the values)}."""

import json


def read_tensors(path):
    """Raises ValueError with the path."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        spans = {name: (entry["shape"], *entry["data_offsets"]) for name, entry in header.items()}
        is_whole = len(data) == start + max(end for _, _, end in spans.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is not a safetensors file: {error}") from None
    if not is_whole:
        raise ValueError(f"{path}: its length does not match its header")
    return {
        name: (shape, data[start + begin : start + end])
        for name, (shape, begin, end) in spans.items()
    }


def write_tensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, values) in tensors.items():
        start, end = end, end + len(values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(values for _, values in tensors.values())
