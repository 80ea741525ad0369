"""./ladder ask: how trained models answer questions in SQL that they have not seen."""

import contextlib
import json
import tempfile
from textwrap import shorten
from typing import NamedTuple

from launcher.build import need_release
from launcher.checkout import chosen_kind
from launcher.console import Parser, count_from, fail
from launcher.processes import call

sqlite3 = None
with contextlib.suppress(ImportError):  # of Python's library, but some builds of Python lack it
    import sqlite3

DESCRIPTION = """\
Asks trained models questions in English that none was trained on, and judges their answers:

  ./ladder ask runs/sql                       one model
  ./ladder ask runs/first runs/sql --show 5   two, and the first five questions in full
  ./ladder ask runs/sql --prompt $'CREATE TABLE ships (name TEXT, length INT)\\nHow many ships are there?'

An answer is valid if SQLite accepts it for the tables of its question. It is right if it is, letter for letter, the
query that the corpus has for the question; another query may mean the same, so a few more may be right.
Models: a run, one of its checkpoints, or a Hugging Face folder."""


class Verdict(NamedTuple):
    problem: str  # of the query, in SQLite's words; empty: it is valid
    is_wanted: bool


def judge(context: str, wanted: str, answer: str) -> Verdict:
    """Prepares the query without running it, in a database that has its question's tables."""
    with sqlite3.connect(":memory:") as database:
        database.executescript(context)
        try:
            database.execute(f"EXPLAIN {answer}")
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # two queries, a null byte
            return Verdict(str(error), False)
    return Verdict("", answer == wanted)


def answers_of(model: str, options: list[str]) -> list[dict]:
    """What the model answers, and what was asked. Ends the command if the program fails."""
    program = next(chosen_kind().build.glob("*/text_to_sql/ladder_ask"))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        code = call([program, model, *options], stdout=file)
        if code:
            raise SystemExit(code)
        file.seek(0)
        return [json.loads(line) for line in file]


def percent(flags: list[bool]) -> str:
    return f"{100 * sum(flags) / len(flags):.0f}%"


def show_table(models: list[str], verdicts: list[list[Verdict]]) -> None:
    width = max(map(len, models))
    print(f"{len(verdicts[0])} questions that no training sees\n")
    print(f"{'':{width}}  valid SQL  the wanted query")
    for model, of_model in zip(models, verdicts, strict=True):
        valid = percent([not verdict.problem for verdict in of_model])
        wanted = percent([verdict.is_wanted for verdict in of_model])
        print(f"{model:{width}}  {valid:>9}  {wanted:>16}")


def show_question(models: list[str], asked: list[dict], verdicts: list[Verdict]) -> None:
    """A question, and the answer of each model."""
    width = max(map(len, [*models, "wanted"]))
    print(f"\n{asked[0]['context']}\n{asked[0]['question']}")
    print(f"  {'wanted':{width}}  {asked[0]['wanted']}")
    for model, line, verdict in zip(models, asked, verdicts, strict=True):
        said = "as wanted" if verdict.is_wanted else verdict.problem or "valid, but another query"
        print(f"  {model:{width}}  {shorten(line['answer'], 200)}  ({said})")


def run(words: list[str]) -> int:
    parser = Parser("ask", DESCRIPTION)
    parser.add_argument("models", metavar="MODEL", nargs="+", help="a run, or a folder of a model")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--questions", metavar="N", type=count_from(1, 1301), default=300, help="how many (300)"
    )
    what.add_argument(
        "--prompt", metavar="TEXT", help="instead, answer this: tables, a new line, a question"
    )
    parser.add_argument(
        "--show", metavar="N", type=count_from(0, 1301), default=3, help="of them in full (3)"
    )
    arguments = parser.parse_args(words)
    if not sqlite3:
        fail(
            "this Python has no module sqlite3, which judges the answers (Debian: libpython3-stdlib)"
        )
    need_release(chosen_kind(), "ladder_ask")
    models = arguments.models
    if arguments.prompt:
        for model in models:
            print(answers_of(model, ["--prompt", arguments.prompt])[0]["answer"])
        return 0
    asked = [answers_of(model, ["--questions", str(arguments.questions)]) for model in models]
    verdicts = [
        [judge(line["context"], line["wanted"], line["answer"]) for line in lines]
        for lines in asked
    ]
    show_table(models, verdicts)
    for number in range(min(arguments.show, arguments.questions)):
        show_question(
            models,
            [lines[number] for lines in asked],
            [of_model[number] for of_model in verdicts],
        )
    return 0
