"""What the scripts in scripts/cluster ask of the launcher: python3 scripts/launcher QUESTION …"""

from launcher.checkout import chosen_kind
from launcher.console import nearest, usage_error
from launcher.launch import launch_mpirun
from launcher.steps import resolve_step, step_names


def program(step):
    """The path of its trainer."""
    if not step:
        usage_error(f"which step? The steps: {' '.join(step_names())}")
    return chosen_kind().program(resolve_step(step))


def mpirun(words):
    """Runs its command line. Without -q mpirun explains itself; codes above 128 are its own, not only those of signals."""
    return launch_mpirun(words, "saved and stopped (exit code 75); the same command with --resume auto continues", True).code


COMMANDS = {
    "--program": lambda words: print(program(words[0])),
    "--nearest": lambda words: print(nearest(words[0], words[1:])),
    "--venv": lambda _: print(chosen_kind().venv),
    "--mpirun": mpirun,
}
