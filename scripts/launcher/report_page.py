"""The page of ./ladder report: one file of HTML, with everything in it that it needs."""

from html import escape
from pathlib import Path

from launcher.charts import (
    FROM_ZERO,
    LOGARITHMIC,
    Bar,
    Line,
    bar_chart,
    html_table,
    line_chart,
    patterns,
    scrolling,
    span_chart,
)
from launcher.report_runs import (
    GRADIENTS,
    LOSS,
    PARAMETERS,
    RATE,
    SECONDS,
    UNITS,
    VALIDATION,
    Comparison,
    Run,
)
from launcher.tables import digits

HERE = Path(__file__).resolve().parent
MARK = "<!DOCTYPE html>\n<!-- written by ./ladder report -->\n"  # how every page begins
EQUAL = "Every run equals, to the bit, the one that it is compared with: all steps, all series."
NOT_COMPARED = ("out", "quiet", "log-every")  # options that say nothing about what was trained


def page(title: str, groups: list[list[Run]], left_out: list[str]) -> str:
    """Charts show the runs of a group over one another."""
    sections = "".join(Section(f"g{i}", group).html() for i, group in enumerate(groups))
    links = "".join(
        f'<li><a href="#g{i}">{escape(heading(group))}</a></li>' for i, group in enumerate(groups)
    )
    contents = f"<nav aria-label=Models><ul>{links}</ul></nav>" if len(groups) > 1 else ""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in left_out)
    contents += f"<p>Left out:</p><ul>{reasons}</ul>" if left_out else ""
    style, script = ((HERE / f"report_page.{kind}").read_text() for kind in ("css", "js"))
    return (
        f'{MARK}<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>{patterns()}'
        f"<header><h1>{escape(title)}</h1>{contents}</header>\n<main>\n{sections}</main>\n<script>\n{script}</script></body></html>\n"
    )


def heading(group: list[Run]) -> str:
    names = (
        f"{group[0].name}, {group[1].name}"
        if len(group) == 2
        else f"{group[0].name} and {len(group) - 1} others"
    )
    sizes = sorted({run.report["num_parameters"] for run in group if run.report})
    unit = next((run.report["unit"].removesuffix("s") for run in group if run.report), "")
    model = (
        f": {' to '.join(f'{size:,}' for size in dict.fromkeys((sizes[0], sizes[-1])))} parameters, nats per {unit}"
        if sizes
        else ""
    )
    return (names if len(group) > 1 else group[0].name) + model


def in_binary(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:,.4g} {unit}"
        size /= 1024
    return f"{size:,.4g} GiB" if size < 9999 else f"{size:,.0f} GiB"


class Section:
    """A section of a group."""

    def __init__(self, name: str, runs: list[Run]):
        self.name, self.runs, self.num_charts = name, runs, 0
        self.is_elastic = any("worker" in run.report.get("config", {}) for run in runs)
        self.compared = {run.name: Comparison(run, run.reference) for run in runs if run.reference}

    def html(self) -> str:
        parts = {
            "Runs": self.overview(),
            "Equality": self.equality(),
            "Training": self.training(),
            "Memory": self.memory(),
            "Traffic": self.traffic(),
            "Speed": self.speed(),
            "Rounds": self.rounds(),
            "Configuration": self.configuration(),
        }
        body = "".join(
            f"<section><h3>{title}</h3>\n{part}</section>\n"
            for title, part in parts.items()
            if part
        )
        return (
            f'<article id="{self.name}"><h2>{escape(heading(self.runs))}</h2>\n{body}</article>\n'
        )

    def chart(self, draw, *what) -> str:
        self.num_charts += 1
        return draw(f"{self.name}-{self.num_charts}", *what)

    def lines(self, title: str, series: str, *scale) -> str:
        return self.chart(
            line_chart,
            title,
            [
                Line(i, run.name, run.series.get(series, {}), run.spans())
                for i, run in enumerate(self.runs)
            ],
            *scale,
        )

    def overview(self) -> str:
        head = [
            "run",
            "trainer",
            "parameters",
            "ranks",
            "transport",
            "steps",
            "final loss",
            "final validation loss",
            "end",
        ]
        rows = []
        for run in self.runs:
            of = run.report
            final = [
                next(
                    (value for _, value in sorted(run.series.get(name, {}).items(), reverse=True)),
                    None,
                )
                for name in (LOSS, VALIDATION)
            ]
            rows.append(
                [
                    run.name,
                    of.get("step"),
                    of.get("num_parameters"),
                    of.get("world_size"),
                    of.get("transport"),
                    max(run.steps(), default=0),
                    *final,
                    end_of(run),
                ]
            )
        return scrolling("Runs", html_table(head, rows))

    def equality(self) -> str:
        others = [
            f"{run.name} ({what})"
            for run in self.runs
            if not run.reference and (what := run.other_model(self.runs[0]))
        ]
        of_others = (
            f"<p>Not compared, being of another model: {escape('; '.join(others))}.</p>"
            if others
            else ""
        )
        if not self.compared:
            return of_others
        head = [
            "run",
            "compared with",
            "steps",
            "equal to the bit",
            *(names := [LOSS, VALIDATION, GRADIENTS, PARAMETERS]),
            "other series",
            "final parameters",
        ]
        rows = []
        for run in self.runs:
            if run.name in self.compared:
                found = self.compared[run.name]
                cells = [
                    str(found.by_name[name]) if name in found.by_name else "–" for name in names
                ]
                parameters = (
                    "the runs end at different steps"
                    if found.have_differing_ends
                    else found.parameters
                )
                cells = ["yes" if found.is_equal() else "no", *cells, found.others(), parameters]
                cells = [
                    (cell, "differs") if cell.startswith(("no", "differ")) else cell
                    for cell in cells
                ]
                rows.append([run.name, run.reference.name, found.num_steps, *cells])
        unequal = [name for name, found in self.compared.items() if not found.is_equal()]
        verdict = f"Not equal to the bit: {', '.join(unequal)}." if unequal else EQUAL
        note = (
            " An ULP, a unit in the last place, is the distance between two neighboring numbers of a format."
            if unequal
            else ""
        )
        if self.is_elastic:
            note += " Workers read different rows, and only their global parameters must be equal."
        return f"<p><strong>{escape(verdict)}</strong>{note}</p>{of_others}{scrolling('Equality', html_table(head, rows))}"

    def training(self) -> str:
        unit = next((run.report["unit"] for run in self.runs if run.report), "units")
        charts = [
            self.lines(f"Training loss, nats per {unit.removesuffix('s')}", LOSS),
            self.lines(f"Validation loss, nats per {unit.removesuffix('s')}", VALIDATION),
        ]
        for name in (LOSS, GRADIENTS, PARAMETERS):
            found = {
                run: of.by_name[name] for run, of in self.compared.items() if name in of.by_name
            }
            if any(of.first for of in found.values()):
                formats = " and ".join(sorted({of.precision for of in found.values()}))
                lines = [
                    Line(i, run.name, found[run.name].ulps, run.spans())
                    for i, run in enumerate(self.runs)
                    if run.name in found
                ]
                charts.append(
                    self.chart(
                        line_chart,
                        f"Difference of the {name} to the reference, ULPs of {formats}",
                        lines,
                        FROM_ZERO,
                    )
                )
        charts += [
            self.lines("Gradient norm, before clipping", GRADIENTS),
            self.lines("Parameter norm", PARAMETERS),
        ]
        charts.append(self.lines("Learning rate", RATE))
        known = {LOSS, VALIDATION, GRADIENTS, PARAMETERS, RATE, SECONDS, UNITS}
        metrics = dict.fromkeys(
            name for run in self.runs for name in run.series if name not in known
        )
        charts += [self.lines(name.replace("_", " ").capitalize(), name) for name in metrics]
        return grid(charts)

    def memory(self) -> str:
        held, resident = (
            [
                Bar(
                    f"{run.name}, rank {row['rank']}",
                    row[kind],
                    row["theory"] if kind == "held" else None,
                )
                for run in self.runs
                for row in run.memory
            ]
            for kind in ("held", "resident")
        )
        without = [run.name for run in self.runs if run.report and not run.memory]
        note = (
            f"<p>No account of {escape(', '.join(without))}: the ranks were threads, which share the memory of one process.</p>"
            if without
            else ""
        )
        return note + grid(
            [
                self.chart(bar_chart, "Held between steps, and what theory says", held, in_binary),
                self.chart(bar_chart, "Resident memory, at most", resident, in_binary),
            ]
        )

    def traffic(self) -> str:
        bars = [
            Bar(f"{run.name}, rank {row['rank']}", row["sent"], row["theory"])
            for run in self.runs
            for row in run.traffic
        ]
        drawn = grid(
            [self.chart(bar_chart, "Sent during training, and what theory says", bars, in_binary)]
        )
        uncounted = (
            " What workers that may die send to one another is not counted."
            if self.is_elastic
            else ""
        )
        return drawn or (f"<p>No rank has sent anything.{uncounted}</p>" if bars else "")

    def speed(self) -> str:
        unit = next((run.report["unit"] for run in self.runs if run.report), "")
        bars = [
            Bar(run.name, {f"{unit} per second": run.report["units_per_second"]})
            for run in self.runs
            if run.report
        ]
        return grid(
            [
                self.chart(
                    bar_chart,
                    f"{unit.capitalize()} per second, of all ranks",
                    bars,
                    lambda speed: f"{speed:,.0f}",
                ),
                self.lines("Time per step, in seconds", SECONDS, LOGARITHMIC),
            ]
        )

    def rounds(self) -> str:
        """Rounds, also of workers that have died: they left no report."""
        if not any("sync-every" in run.report.get("config", {}) for run in self.runs):
            return ""
        rows, spans = [], []
        for run in self.runs:
            config, seconds = (
                run.report.get("config", {}),
                {step: s for step, s in run.series.get(SECONDS, {}).items() if s is not None},
            )
            if not run.steps() or (run.report and "sync-every" not in config):
                continue
            missed = [b - a - 1 for (_, a), (b, _) in zip(run.spans(), run.spans()[1:])]
            slowest = max(seconds, key=seconds.get, default=None)
            every = config.get("sync-every")
            worker = f"{config['worker']} of {config['workers']}" if "worker" in config else None
            rows.append(
                [
                    run.name,
                    worker,
                    every,
                    run.steps()[-1] // every if every else None,
                    run.num_taken() if run.report else None,
                    f"{sum(missed):,} before step {run.spans()[1][0]:,}"
                    if missed
                    else "none"
                    if run.report
                    else None,
                    f"{digits(seconds[slowest])} s, step {slowest:,}" if slowest else None,
                    end_of(run),
                ]
            )
            spans.append((run.name, run.spans(), end_of(run)))
        head = [
            "run",
            "worker",
            "inner steps per round",
            "rounds",
            "steps taken",
            "steps missed",
            "slowest step",
            "end",
        ]
        return scrolling("Rounds", html_table(head, rows)) + grid(
            [self.chart(span_chart, "Which worker took which steps", spans)]
        )

    def configuration(self) -> str:
        runs = [run for run in self.runs if run.report]
        if not runs:
            return ""
        facts = [
            {
                key: value
                for key, value in run.report.items()
                if not isinstance(value, (list, dict)) and key != "sample"
            }
            for run in runs
        ]
        measured = (
            "units_per_second",
            "tokens_per_second",
            "product_speed_share",
            "param_hash",
            "schema_version",
        )
        facts = [
            {key: value for key, value in of.items() if key not in measured} | run.report["config"]
            for of, run in zip(facts, runs)
        ]
        names = [
            name
            for name in dict.fromkeys(name for of in facts for name in of)
            if name not in NOT_COMPARED or len(runs) == 1
        ]
        texts = {name: [setting(of[name]) if name in of else "–" for of in facts] for name in names}
        head = ["option or fact", *(run.name for run in runs)]
        other = [
            [name, *((text, "differs" if text != of[0] else "") for text in of)]
            for name, of in texts.items()
            if len(set(of)) > 1
        ]
        same = [[name, of[0]] for name, of in texts.items() if len(set(of)) == 1]
        differing = (
            f"<p>What differs; what is unlike the first run is bold:</p>{scrolling('Differences', html_table(head, other))}"
            if other
            else ""
        )
        title = "What is the same in all" if len(runs) > 1 else "All options"
        return (
            differing
            + f"<details><summary>{title}</summary>{scrolling(title, html_table(['option or fact', 'value'], same))}</details>"
        )


def setting(value) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else "–"
        if value in (None, "")
        else str(value)
    )


def end_of(run: Run) -> str:
    if run.diverged:
        return f"no report: {run.diverged}"
    if not run.report:
        return (
            f"no report: killed, or still running, after step {run.steps()[-1]:,}"
            if run.steps()
            else "no report"
        )
    return "stopped by a signal" if run.report.get("was_stopped") else "finished"


def grid(charts: list[str]) -> str:
    charts = [chart for chart in charts if chart]
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""
