"""Real results for the site: the table and charts of a ./ladder run, the lessons' measured time lines as
something to look into, and a recording of the judge.

write() puts Markdown into a folder that Sphinx reads, and what a browser loads into another, which becomes
_static/results. Nothing on these pages is typed: a run, its trace and the recording are read from their own files.
"""

import json
import re
import shutil
import time
from html import escape
from pathlib import Path

from draw_trace import bounds, draw, median_step
from launcher.checkout import ROOT, read_kept
from launcher.tables import read_table
from launcher.time_lines import read_time_lines
from read_trace import account, ranks_of, read_trace
from results.traces import data_of, script_of, table, tables_of

HERE = Path(__file__).resolve().parent
CAST = HERE / "judge.cast"
FIGURE = "time_line.svg"
TOKEN = re.compile(r"(\r?\n|\r|\x1b\[[0-9;]*[mK])")


def page_of_figure(figure):
    """The page on which the run of such a figure can be looked into: step4_bucketed_ddp/time_line.svg is on
    results/time_lines/step4_bucketed_ddp. None for any other picture."""
    folder, _, name = str(figure).rpartition("/")
    line = read_time_lines().get(folder) if name == FIGURE else None
    return f"results/time_lines/{line.name}" if line else None


def write(folder, static, runs=ROOT / "runs", traces=None):
    """Writes pages into folder/results, and what they load into the folder `static`, for which a page's address is
    _static/results. `runs` has those of ./ladder run, of which the last is shown; `traces` is what
    scripts/draw_time_lines --keep has filled. Returns the names of the pages that a list should have."""
    for path in (folder / "results/time_lines", static):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("results.css", "time_line.js", "replay.js"):
        shutil.copy(HERE / name, static / name)
    write_ladder(folder / "results/ladder.md", static, last_run(runs))
    (folder / "results/judge.md").write_text(judge_page(*read_cast(CAST)))
    write_time_lines(folder / "results/time_lines", static, traces)
    return ["results/ladder", "results/time_lines/index", "results/judge"]


def loads(depth, *scripts):
    """HTML that loads the style and these scripts; `depth`: folders from the page up to the site."""
    static = "../" * depth + "_static/results"
    style = f'<link rel="stylesheet" href="{static}/results.css">\n'
    return style + "".join(f'<script defer src="{static}/{name}"></script>\n' for name in scripts)


def made(about):
    """Where and when something was measured, as a sentence."""
    if not about:
        return "Its command, processor and commit were not recorded."
    commit = f", at commit `{about['commit']}`" if about["commit"] else ""
    return f"Measured on {about['date']} on {about['cpu']}{commit}."


# ---- the ladder's table ------------------------------------------------------------------------------------------------


def last_run(runs):
    """The folder of the last ./ladder run of which all rungs have a report; None if there is none."""
    found = [file.parent for file in Path(runs).glob("ladder-*/table.md")]
    return max(found, key=lambda run: run.name, default=None)


def write_ladder(page, static, run):
    head = "# The table of a run\n\n"
    if run is None:
        page.write_text(
            f"{head}Nothing was trained before this site was built. `./ladder docs --measure` first trains all rungs, in about "
            "three minutes on two cores, as `./ladder run` does.\n"
        )
        return
    about, text = read_kept(run / "run.json", {}), (run / "table.md").read_text()
    report = run / "report.html"
    parts = [head, "What this command trained, and compared:\n\n" if about else ""]
    parts += [f"```sh\n{about['command']}\n```\n\n"] if about else []
    parts.append(
        f"{made(about)} [Results](../docs/results.md#the-ladders-table) says how to read it."
    )
    if report.exists():
        shutil.copy(report, static / "report.html")
        parts.append(
            ' <a href="../_static/results/report.html">The charts of this run</a> show losses, differences, '
            "memory and traffic of each rung, as `./ladder report` drew them."
        )
    parts.append(f"\n\n{loads(1)}\n")
    lines, tables = read_table(text), []
    for line in lines:  # a new table begins with its head, again "rung"
        tables.append([]) if line[0] == "rung" else None
        tables[-1].append(line)
    for caption, (titles, _, *rows) in zip(
        ("What was learned", "What it cost"), tables, strict=True
    ):
        parts.append(table(caption, titles, rows) + "\n")
    note = text.rpartition("|\n")[2].strip()
    page.write_text("".join([*parts, note, "\n"]))


# ---- time lines --------------------------------------------------------------------------------------------------------


def write_time_lines(folder, static, traces):
    lines = read_time_lines()
    kept = {key: line for key, line in lines.items() if traces and line.file(traces).exists()}
    loaded = {key: read_trace(line.file(traces)) for key, line in kept.items()}
    numbers = {key: median_step(trace) for key, trace in loaded.items()}
    lengths = {key: length_of(loaded[key], numbers[key]) for key in kept}
    for key, line in kept.items():
        length = max(lengths[key], lengths.get(line.beside, 0))
        data = data_of(loaded[key], numbers[key], length)
        (static / f"{line.name}.js").write_text(script_of(line.name, data))
        (static / f"{line.name}.svg").write_text(draw(loaded[key], numbers[key], length))
        shutil.copy(line.file(traces), static / f"{line.name}.trace.json")
        beside = kept.get(line.beside)
        about = line.about(traces)
        page = time_line_page(line, beside, about, loaded[key], numbers[key])
        (folder / f"{line.name}.md").write_text(page)
    entries = "".join(
        f"- [{title_of(key)}]({line.name}.md): {share_of(loaded[key], numbers[key])}\n"
        if key in kept
        else f"- {title_of(key)}\n"
        for key, line in lines.items()
    )
    missing = "" if kept else "No trace was kept when this site was built: `./ladder docs --measure` makes them.\n\n"  # fmt: skip
    tree = "\n".join(line.name for line in kept.values())
    tree = f"\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n" if tree else ""
    (folder / "index.md").write_text(
        "# Measured time lines\n\nWhat each rank did in an optimizer step, from traces of runs: move, zoom, and click to see "
        f"what is sent, how many bytes, and who waits for it.\n\n{missing}{entries}{tree}"
    )


def length_of(trace, number):
    begin, end = bounds(trace, number)
    return end - begin


def share_of(trace, number):
    own = account(trace.ranks[0], [number])
    return (
        f"{own.step_us / 1000:.0f} ms, of which rank 0 waits {own.waiting * own.step_us / 1000:.0f}"
    )


def title_of(folder):
    return re.search(r"^# (.*)", (ROOT / folder / "README.md").read_text(), re.M)[1]


def still(line, depth=2):
    """The picture stays where there is no JavaScript."""
    source = f"{'../' * depth}_static/results/{line.name}.svg"
    return f'<figure data-trace="{line.name}"><img src="{source}" alt="Time line of {line.name}; the tables below have its numbers"></figure>\n'


def time_line_page(line, beside, about, trace, number):
    title, shown = title_of(line.folder), [line, *([beside] if beside else [])]
    compared = (
        f"Below it, on the same axis, is [{title_of(beside.folder)}]({beside.name}.md).\n\n"
        if beside
        else ""
    )
    scripts = [*(f"{each.name}.js" for each in shown), "time_line.js"]
    return (
        f"# {title.partition(':')[0]}, measured\n\n"
        f"An optimizer step of [{title}](../../{line.folder}/README.md) on {ranks_of(trace)}, from the trace of\n\n"
        f"```sh\n{about.get('command', ' '.join(line.command()))} --trace trace.json\n```\n\n"
        f"{made(about)} The lesson's figure shows another run of this command: its times differ, its bytes do not.\n\n{compared}"
        f'<div class="ladder-time-lines">\n{"".join(map(still, shown))}</div>\n\n'
        f"## What each rank did with its time\n\n{tables_of(trace, number)}\n"
        "A rank computes whenever it does not wait. *Hidden* is the share of the time in flight in which it does not wait.\n\n"
        f'The trace itself: <a href="../../_static/results/{line.name}.trace.json" download>{line.name}.trace.json</a>, for '
        "`./ladder trace` or ui.perfetto.dev.\n\n"
        f"{loads(2, *scripts)}"
    )


# ---- the recording of the judge ----------------------------------------------------------------------------------------


def read_cast(file):
    """What is known of the recording, and what was printed: (seconds, text, color) of what stayed on the terminal."""
    about, *events = map(json.loads, file.read_text().splitlines())
    printed, line, color, returned = [], [], "", False
    for seconds, kind, text in events:
        for token in TOKEN.split(text) if kind == "o" else []:
            if token.endswith("\n"):
                printed += [*line, (seconds, "\n", "")]
                line, returned = [], False
            elif token == "\r":
                returned = True
            elif token.endswith("K") and token.startswith("\x1b"):
                line = [] if returned else line
            elif token.startswith("\x1b"):
                color = token[2:-1].strip("0")
            elif token:
                line = [*([] if returned else line), (seconds, token, color)]
                returned = False
    return about, printed + line


def judge_page(about, printed):
    spans, lines = "", "".join(text for _, text, _ in printed).count("\n")
    for seconds, text, color in printed:
        kind = " ".join(
            [*(["typed"] if text.startswith("$ ") else []), *([f"sgr-{color}"] if color else [])]
        )
        kind = f' class="{kind}"' if kind else ""
        spans += f'<span data-at="{seconds}"{kind}>{escape(text, quote=False)}</span>'
    when = time.strftime("%-d %B %Y", time.gmtime(about["timestamp"]))
    return (
        "# The judge, recorded\n\n"
        "An answer to the exercise of [step 3](../step3_naive_dp/README.md) divides the summed gradients by the number of "
        "ranks. The judge trains with it, says what is wrong, and on the second call passes the solution. "
        f"`scripts/record_judge` recorded both on {when}; waits of more than {about['idle_time_limit']} seconds are cut.\n\n"
        f'<div class="ladder-replay" data-text="ladder-said" data-idle="{about["idle_time_limit"]}" hidden></div>\n\n'
        f"## What was printed\n\nAll {lines} lines, to read instead:\n\n"
        f'<pre id="ladder-said" class="ladder-said">{spans}</pre>\n\n{loads(1, "replay.js")}'
    )
