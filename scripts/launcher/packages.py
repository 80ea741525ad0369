"""The system packages that building and testing need: Debian's and Ubuntu's."""

import os
import shutil

from launcher.console import fail, say
from launcher.logs import Log
from launcher.processes import output_of

BUILD_PACKAGES = """g++ cmake ninja-build python3-venv ccache libopenmpi-dev openmpi-bin libgtest-dev libgmock-dev
    libbenchmark-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libonig-dev libutf8proc-dev
    libzmq3-dev cppzmq-dev""".split()
TEST_PACKAGES = (
    "doxygen graphviz python3-yaml clang-format-14 clang-16 libclang-rt-16-dev chromium".split()
)


def missing_packages(names: list[str]) -> list[str]:
    """The packages that are not installed; none if there is no dpkg."""
    if not shutil.which("dpkg-query"):
        return []
    # It also fails if it does not know one of them.
    query = [
        "sh",
        "-c",
        'dpkg-query -W -f "\\${db:Status-Status} \\${Package}\\n" "$@"; true',
        "-",
        *names,
    ]
    installed = {
        line.split()[1] for line in output_of(query).splitlines() if line.startswith("installed ")
    }
    return [name for name in names if name not in installed]


def need_packages(names: list[str]) -> None:
    """Installs them if it may. Outside Debian and Ubuntu, CMake reports what is missing."""
    missing = [] if os.environ.get("LADDER_SKIP_PACKAGES") else missing_packages(names)
    if not missing:
        return
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    if os.geteuid() != 0:
        if output_of(["sudo", "-n", "echo", "may"], start_new_session=False) != "may":
            fail(
                f"please install: sudo apt-get install {' '.join(missing)}   (or set LADDER_SKIP_PACKAGES=1 to use the "
                "tools that are installed)"
            )
        apt = ["sudo", "-n", *apt]
    say(f"installing system packages: {' '.join(missing)}")
    log = Log("packages")
    log.run([*apt, "update"], start_new_session=False)  # sudo knows users by their terminal
    log.run([*apt, "install", "-y", "--no-install-recommends", *missing], start_new_session=False)
