"""What ./ladder run trains: reads scripts/ladder_rungs.tsv, which says what its columns mean."""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).resolve().parent.parent / "ladder_rungs.tsv"


class Rung(NamedTuple):
    """A line of the file, a field for each column."""

    name: str
    step: str
    ranks: str
    when: str
    equals: str
    within: str
    reads: str
    options: str

    def num_ranks(self, of_run: int) -> int:
        return of_run if self.ranks == "N" else int(self.ranks)

    def own_options(self, num_ranks: int, num_steps: int = 1, run: Path | str = "RUN") -> list[str]:
        """The options in a run on so many ranks, of so many steps, in this folder."""
        pipeline_stages = 2 if num_ranks % 2 == 0 else num_ranks
        tensor_ranks = 2 if num_ranks % 2 == 0 else 1
        values = {
            "N": num_ranks,
            "P": pipeline_stages,
            "R": num_ranks // pipeline_stages,
            "T": tensor_ranks,
            "Q": num_ranks // tensor_ranks,
            "S": min(num_steps, 20),
            "D": max(n for n in range(1, 11) if num_steps % n == 0),
        }
        words = [] if self.options == "-" else self.options.split()
        return [
            f"{run}/{word[4:]}" if word.startswith("RUN/") else str(values.get(word, word))
            for word in words
        ]


def read_rungs(path: Path = FILE, num_microbatches: int = 1, is_corpus: bool = True) -> list[Rung]:
    """The rungs of such a run."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    rungs = [Rung(*line.split("\t")) for line in lines]
    with_one, several = 0, -1
    return [
        rung._replace(within=rung.within.split(",")[several if num_microbatches > 1 else with_one])
        for rung in rungs
        if rung.when == "always" or is_corpus
    ]


def is_corpus(data: str, val_data: str) -> bool:
    """Whether a run with these options sees the built-in data and nothing else."""
    return data == "corpus" and val_data in ("", "corpus")
