#!/usr/bin/env python3
"""Compiles the C++ of the live figures to WebAssembly, as scripts that a page can load from a file.

    site/figures/compile.py OUT [--zig PATH]

OUT gets all that a page loads: NAME.wasm.js, the bytes of NAME.cpp, then NAME.js, wasm.js and
figures.css. The compiler is the zig of scripts/requirements-figures.txt, in .ladder/venv-figures.
Without it, this says so, writes nothing, and the pages show still figures. What has been compiled is
kept in .ladder/figures, and used until a source, a header or the compiler changes.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from launcher.checkout import shown, write  # noqa: E402
from launcher.console import fail, say  # noqa: E402
from launcher.libtorch import need_environment  # noqa: E402

HERE, KEPT = ROOT / "site/figures", ROOT / ".ladder/figures"
FLAGS = "-target wasm32-wasi -mexec-model=reactor -std=c++20 -Oz -s -fexceptions".split()
JSON_HEADERS = next(
    (
        path
        for path in map(Path, ("/usr/include", "/usr/local/include"))
        if (path / "nlohmann").is_dir()
    ),
    None,
)


def names():
    return sorted(path.stem for path in HERE.glob("*.cpp"))


def find_zig():
    """The command that starts zig; none, and a line that says why, if it cannot be had."""
    if not JSON_HEADERS:
        say("the figures stay still: there is no nlohmann/json.hpp (Debian's nlohmann-json3-dev)")
        return None
    try:
        return [need_environment("figures") / "bin/python", "-m", "ziglang"]
    except SystemExit as error:
        say(f"the figures stay still: zig cannot be installed ({str(error).splitlines()[-1]})")
        return None


def sources(name):
    """The figure's own source, and those of the repository that its `sources:` lines name."""
    own = HERE / f"{name}.cpp"
    return [
        own,
        *(ROOT / path for path in re.findall(r"^// sources: (\S+)$", own.read_text(), re.M)),
    ]


def inputs(files):
    """These files, and all of the repository that they include, in order of their names."""
    found, new = set(), set(files)
    while new:
        found |= new
        included = {
            ROOT / path
            for file in new
            for path in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M)
        }
        new = {path for path in included if path.is_file()} - found
    return sorted(found)


def hash_of(name):
    state = hashlib.sha256(repr([FLAGS, JSON_HEADERS]).encode())
    version = ROOT / "scripts/requirements-figures.txt"
    for file in [Path(__file__), version, *inputs(sources(name))]:
        state.update(f"{file.name} {len(file.read_bytes())}\n".encode() + file.read_bytes())
    return state.hexdigest()[:16]


def compile_figure(name, zig):
    """The bytes of the WebAssembly."""
    with tempfile.TemporaryDirectory(prefix="ladder-figure-") as folder:
        # Of the system's headers those of the JSON library, and no others: zig brings its own.
        (Path(folder) / "nlohmann").symlink_to(JSON_HEADERS / "nlohmann")
        wasm = Path(folder) / f"{name}.wasm"
        done = subprocess.run(
            [*zig, "c++", *FLAGS, f"-I{ROOT}", "-isystem", folder, *sources(name), "-o", wasm],
            env={
                **os.environ,
                "ZIG_GLOBAL_CACHE_DIR": str(KEPT / "zig"),
                "ZIG_LOCAL_CACHE_DIR": folder,
            },
            capture_output=True,
            text=True,
        )
        if done.returncode:
            fail(f"zig cannot compile {shown(HERE / name)}.cpp:\n{done.stderr[-4000:]}")
        return wasm.read_bytes()


def compile_all(out, zig=None):
    """Returns the names of the figures that are live: all or none."""
    zig = [zig] if zig else find_zig()
    if not zig:
        return []
    out.mkdir(parents=True, exist_ok=True)
    for file in [*HERE.glob("*.js"), *HERE.glob("*.css")]:
        shutil.copyfile(file, out / file.name)
    for name in names():
        kept = KEPT / f"{name}-{hash_of(name)}.wasm.js"
        if not kept.is_file():
            say(f"compiling {name}.cpp to WebAssembly")
            bytes_of = base64.b64encode(compile_figure(name, zig)).decode()
            for old in KEPT.glob(f"{name}-*.wasm.js"):
                old.unlink()
            KEPT.mkdir(parents=True, exist_ok=True)
            write(kept, f'Ladder.wasm.{name} = "{bytes_of}";\n')
        shutil.copyfile(kept, out / f"{name}.wasm.js")
    return names()


def main():
    parser = argparse.ArgumentParser(
        description="Compiles the C++ of the live figures to WebAssembly."
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--zig", metavar="PATH", help="this zig instead of .ladder/venv-figures")
    arguments = parser.parse_args()
    for name in compile_all(arguments.out, arguments.zig):
        print(f"{shown(arguments.out / name)}.wasm.js")


if __name__ == "__main__":
    main()
