"""Writes TensorBoard's event files: a record for each step, its length and its bytes each with a
checksum (TFRecord). A record is a protobuf message `Event` of tensorflow/core/util/event.proto, of
which only scalars are needed.

A TensorBoard that is running goes on reading where it stopped, so a second report only appends.
Where the run is no longer what it was, records that say SessionLog.START withdraw that step and all
later ones."""

import math
import struct
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from launcher.checkout import shown, write_or_fail
from launcher.console import fail
from launcher.report_runs import SECONDS, UNITS, Run


POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
CRC_TABLE = [
    reduce(lambda crc, _: crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0), range(8), byte)
    for byte in range(256)
]
FILE = "events.out.tfevents.0.ladder"  # always the same, so that a second report goes on with it
START = b"\x3a\x02\x08\x01"  # session_log {status: START}


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
    """The value in fp32. What is too large there is infinite."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def at(time_s: float, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", time_s) + b"\x10" + varint(step)


def event(time_s: float, step: int, scalars: dict[str, float]) -> bytes:
    values = [
        delimited(1, delimited(1, tag.encode(errors="replace")) + b"\x15" + single(value))
        for tag, value in scalars.items()
    ]
    return at(time_s, step) + delimited(5, b"".join(values))


class Event(NamedTuple):
    step: int
    data: bytes


def step_and_rest(data: bytes) -> tuple[int, bytes]:
    """What follows the time in one of our events."""
    step, shift, place = 0, 0, 10
    while True:
        byte = data[place]
        step, shift, place = step | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return step, data[place:]


def read_events(content: bytes) -> tuple[list[Event], int]:
    """What TensorBoard shows of an event file, and how many of its bytes are whole records."""
    events, end = [], 0
    while end + 12 <= len(content):
        size = struct.unpack_from("<Q", content, end)[0]
        data = content[end + 12 : end + 12 + size]
        if content[end : end + 16 + size] != record(data):
            break  # it was cut off
        if data[9:10] == b"\x10":  # not the first record, which has no step
            step, rest = step_and_rest(data)
            if rest == START:
                events = [each for each in events if each.step < step]
            else:
                events.append(Event(step, data))
        end += 16 + size
    return events, end


def events_of(run: Run) -> list[Event]:
    """All series of a run, whatever interrupted it, and its speed. What was not logged is dated by
    the seconds that steps took; nothing was by versions that logged no time, whose last step counts
    as taken when the file was last changed."""
    series = {name: of for name, of in run.series.items() if name not in (SECONDS, UNITS)}
    seconds, units = (
        {step: value for step, value in run.series.get(name, {}).items() if value}
        for name in (SECONDS, UNITS)
    )
    series["units per second"] = {
        step: units[step] / seconds[step] for step in units.keys() & seconds.keys()
    }
    first = min(run.times, default=math.inf)  # whose time is known
    known_s = (
        run.times.get(first)
        or (run.folder / ("report.json" if run.report else "metrics.jsonl")).stat().st_mtime
    )
    time_s = known_s - sum(of for step, of in seconds.items() if step <= first)
    events = []
    for step in sorted({step for of in series.values() for step in of}):
        time_s = max(time_s + seconds.get(step, 0), run.times.get(step, 0))
        found = {
            name.replace(" ", "_"): of[step]
            for name, of in series.items()
            if of.get(step) is not None
        }
        events.append(Event(step, event(time_s, step, found)))
    return events


def write_events(folder: Path, run: Run) -> None:
    update(folder / FILE, events_of(run))


def update(file: Path, events: list[Event]) -> None:
    """Appends what changes the events there into these, which are ordered by their steps."""
    try:
        content = file.read_bytes() if file.exists() else b""
    except OSError as error:
        fail(f"{shown(file)} cannot be read: {error.strerror}")
    there, end = read_events(content)
    num_equal = next(
        (i for i, (a, b) in enumerate(zip(there, events)) if a != b), min(len(there), len(events))
    )
    if num_equal < len(there) and num_equal:
        num_equal -= 1  # an event that stays comes again: its fast server withdraws from the next step that it sees
    new, withdrawn = events[num_equal:], there[num_equal:]
    more = [record(each.data) for each in new]
    if withdrawn:
        step = min(each.step for each in [*withdrawn, *new])
        start = record(at(struct.unpack_from("<d", withdrawn[0].data, 1)[0], step) + START)
        more[:0] = [start, start]  # the first in a file withdraws nothing
    if not end:
        time_s = struct.unpack_from("<d", events[0].data, 1)[0] if events else 0.0
        first = b"\x09" + struct.pack("<d", time_s) + delimited(3, b"brain.Event:2")
        write_or_fail(file, b"".join([record(first), *more]))
    elif more or end < len(content):
        append(file, end, b"".join(more))


def append(file: Path, end: int, data: bytes) -> None:
    """After so many bytes. What follows them was cut off; so may this be, and the next report goes
    on from there."""
    try:
        with file.open("r+b") as out:
            out.truncate(end)
            out.seek(end)
            out.write(data)
    except OSError as error:
        fail(f"{shown(file)} cannot be written: {error.strerror}")
