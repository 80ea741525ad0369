"""Writes TensorBoard's event files: a record for each step, its length and its bytes each with a checksum (TFRecord). A record
is a protobuf message `Event` of tensorflow/core/util/event.proto, of which only scalars are needed."""

import math
import struct
from functools import reduce
from pathlib import Path

from launcher.report_runs import SECONDS, UNITS, Run


POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
CRC_TABLE = [reduce(lambda crc, _: crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0), range(8), byte) for byte in range(256)]
FILE = "events.out.tfevents.0.ladder"  # always the same, so that a second report replaces the first


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum, rotated, because that of a text with its checksum in it would be weak."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def delimited(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def single(value: float) -> bytes:
    """In fp32. What is too large there is infinite."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def event(time_s: float, step: int, scalars: dict[str, float]) -> bytes:
    values = [delimited(1, delimited(1, tag.encode()) + b"\x15" + single(value)) for tag, value in scalars.items()]
    return b"\x09" + struct.pack("<d", time_s) + b"\x10" + varint(step) + delimited(5, b"".join(values))


def write_events(folder: Path, run: Run) -> None:
    """All series of a run, whatever interrupted it, and its speed. What was not logged is dated by the seconds that steps took;
    nothing was by versions that logged no time, whose last step counts as taken when the file was last changed."""
    series = {name: of for name, of in run.series.items() if name not in (SECONDS, UNITS)}
    seconds, units = ({step: value for step, value in run.series.get(name, {}).items() if value} for name in (SECONDS, UNITS))
    series["units per second"] = {step: units[step] / seconds[step] for step in units.keys() & seconds.keys()}
    first = min(run.times, default=math.inf)  # whose time is known
    known_s = run.times.get(first) or (run.folder / ("report.json" if run.report else "metrics.jsonl")).stat().st_mtime
    time_s = known_s - sum(of for step, of in seconds.items() if step <= first)
    records = [record(b"\x09" + struct.pack("<d", time_s) + delimited(3, b"brain.Event:2"))]
    for step in sorted({step for of in series.values() for step in of}):
        time_s = max(time_s + seconds.get(step, 0), run.times.get(step, 0))
        found = {name.replace(" ", "_"): of[step] for name, of in series.items() if of.get(step) is not None}
        records.append(record(event(time_s, step, found)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(b"".join(records))
