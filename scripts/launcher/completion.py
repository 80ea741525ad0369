"""./ladder completion bash: what a shell needs to complete the words of ./ladder."""

from launcher.console import Parser
from launcher.steps import step_names
from launcher.trainer_options import REQUESTS, options_of

ABOUT = """\
Prints what completes commands, steps and options of trainers after the Tab key. For this shell,
and for all later ones:

    source <(./ladder completion bash)
    echo 'source <(PATH_OF_THE_CHECKOUT/ladder completion bash)' >> ~/.bashrc"""

# Files are completed where there is nothing else to say.
BASH = """\
_ladder() {
  local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" --complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _ladder ladder ./ladder"""

TAKE_STEPS = ("train", "debug", "exercise", "predict", "bug", "scale", "diff")


def run(words: list[str]) -> int:
    parser = Parser("completion", ABOUT)
    parser.add_argument("shell", choices=["bash"])
    parser.parse_args(words)
    print(BASH)
    return 0


def complete(words: list[str], commands: list[str]) -> list[str]:
    """What the last of the words may be."""
    *before, begun = words or [""]
    if not before:
        known = commands
    elif begun.startswith("--") and before[0] in ("train", "debug"):
        named = [name for name in step_names() for word in before[1:] if is_step(word, name)]
        rows = options_of((named or step_names())[0])
        known = [f"--{name}" for name in (*(row.name for row in rows), *REQUESTS)]
    elif before[0] in TAKE_STEPS:
        known = step_names()
    else:
        known = []
    return sorted(word for word in known if word.startswith(begun))


def is_step(word: str, name: str) -> bool:
    return word == name or name.startswith(f"{word}_")
