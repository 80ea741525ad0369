"""What a measured figure depends on: the machine, the commit, the command, and when it ran."""

import shlex
import time

from launcher.checkout import ROOT
from launcher.plan_speed import cpu_name
from launcher.processes import output_of


def commit() -> str:
    """Of this checkout; "-dirty" if it has changes. Empty without git."""
    return output_of(["git", "-C", ROOT, "describe", "--always", "--dirty"])


def made_with(command: list[str]) -> dict[str, str]:
    return {
        "command": shlex.join(command),
        "cpu": cpu_name(),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
