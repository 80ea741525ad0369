"""What the scripts in scripts/cluster ask of the launcher: python3 scripts/launcher QUESTION …"""

from launcher.checkout import chosen_kind
from launcher.console import nearest, usage_error
from launcher.launch import launch_mpirun
from launcher.steps import resolve_step, step_names


def program(words: list[str]) -> int:
    """The path of a step's trainer."""
    if words in ([], [""]):
        usage_error(f"which step? The steps: {' '.join(step_names())}")
    print(chosen_kind().program(resolve_step(words[0])))
    return 0


def nearest_word(words: list[str]) -> int:
    """WORD KNOWN…"""
    print(nearest(words[0], words[1:]))
    return 0


def venv(_: list[str]) -> int:
    print(chosen_kind().venv)
    return 0


def mpirun(words: list[str]) -> int:
    """Runs a command line of mpirun. Without -q it explains itself; codes above 128 are its own, not only those of signals."""
    return launch_mpirun(words, "saved and stopped (exit code 75); the same command with --resume auto continues", True).code


COMMANDS = {"--program": program, "--nearest": nearest_word, "--venv": venv, "--mpirun": mpirun}
