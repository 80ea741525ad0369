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

# What option parsing needs to read a file of options, and zig leaves out of its C++ library where there are no files. No
# figure names one, so what these sources ask of an operating system is an import that is never called.
OF_FILES = ["fstream.cpp", "filesystem/path.cpp", "filesystem/filesystem_error.cpp"]
WITH_FILES = "-std=c++23 -D_LIBCPP_HAS_FILESYSTEM=1 -D_LIBCPP_BUILDING_LIBRARY -Wno-macro-redefined -Wl,--import-symbols".split()
HERE, KEPT = ROOT / "site/figures", ROOT / ".ladder/figures"
FLAGS = "-target wasm32-wasi -mexec-model=reactor -std=c++20 -Oz -s -fexceptions".split()
LIBRARIES = {
    "nlohmann": "nlohmann-json3-dev",
    "CLI": "libcli11-dev",
}  # of headers alone; Debian's packages


def names():
    return sorted(path.stem for path in HERE.glob("*.cpp"))


def headers_of(library):
    found = (Path(folder) / library for folder in ("/usr/include", "/usr/local/include"))
    return next((path for path in found if path.is_dir()), None)


def find_zig():
    """The command that starts zig; none, and a line that says why, if it cannot be had."""
    if missing := [package for name, package in LIBRARIES.items() if not headers_of(name)]:
        say(f"the figures stay still: headers are missing, Debian's {' '.join(missing)}")
        return None
    try:
        return [need_environment("figures") / "bin/python", "-m", "ziglang"]
    except SystemExit as error:
        say(f"the figures stay still: zig cannot be installed ({str(error).splitlines()[-1]})")
        return None


def sources(name):
    """The figure's own source, and those of the repository that its `sources:` lines name; "theory"
    means all that needs no tensor."""
    own = HERE / f"{name}.cpp"
    named = re.findall(r"^// sources: (\S+)$", own.read_text(), re.M)
    files = [own, *(ROOT / path for path in named if path != "theory")]
    return files + theory_sources() if "theory" in named else files


def theory_sources():
    """What the CMakeLists call THEORY, and the cost cards."""
    folders = [*ROOT.glob("common/*/CMakeLists.txt"), *ROOT.glob("step*/**/CMakeLists.txt")]
    found = [ROOT / "common/model/without_torch.cpp"]
    for folder, text in sorted((path.parent, path.read_text()) for path in folders):
        listed = re.search(r"\bTHEORY ([^A-Z)]+)", text)
        names = re.findall(r"[\w/]+", listed[1].replace(".cpp", "")) if listed else []
        files = (folder / f"{name}.cpp" for name in [*names, "cost_card"])
        found += [file for file in files if file.is_file() and is_planned(file)]
    return found


def is_planned(file):
    return "elastic" not in file.parts  # its workers are step 9's, and need a lighthouse


def list_theories(file):
    """Writes cmake/theories.hpp's function, as CMake does."""
    headers = sorted(filter(is_planned, ROOT.glob("step*/**/theory.hpp")))
    spaces = [re.search(r"^namespace ladder::(\w+)", path.read_text(), re.M)[1] for path in headers]
    includes = "".join(f'#include "{path.relative_to(ROOT)}"\n' for path in headers)
    calls = "".join(f"{space}::theory(), " for space in spaces)
    file.write_text(
        f'#include "cmake/theories.hpp"\n{includes}'
        f"std::vector<ladder::Theory> ladder::theories() {{ return {{{calls}}}; }}\n"
    )


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
    state = hashlib.sha256(repr([FLAGS, WITH_FILES, OF_FILES]).encode())
    version = ROOT / "scripts/requirements-figures.txt"
    for file in [Path(__file__), version, *inputs(sources(name))]:
        state.update(f"{file.name} {len(file.read_bytes())}\n".encode() + file.read_bytes())
    return state.hexdigest()[:16]


def libcxx(zig):
    """Where zig has the sources of its C++ library."""
    done = subprocess.run([*zig, "env"], capture_output=True, text=True, check=True)
    return Path(re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', done.stdout)[1]).resolve() / "libcxx/src"


def compile_figure(name, zig):
    """The bytes of the WebAssembly."""
    with tempfile.TemporaryDirectory(prefix="ladder-figure-") as folder:
        # Of the system's headers those of these libraries, and no others: zig brings its own.
        for library in LIBRARIES:
            (Path(folder) / library).symlink_to(headers_of(library))
        files, flags = sources(name), list(FLAGS)
        if files[1:] and files[-1] in theory_sources():
            list_theories(Path(folder) / "theories.cpp")
            library = libcxx(zig)
            files += [Path(folder) / "theories.cpp", *(library / file for file in OF_FILES)]
            flags += [*WITH_FILES, f"-I{library}"]
        wasm = Path(folder) / f"{name}.wasm"
        done = subprocess.run(
            [*zig, "c++", *flags, f"-I{ROOT}", "-isystem", folder, *files, "-o", wasm],
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
