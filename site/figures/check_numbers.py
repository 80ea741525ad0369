#!/usr/bin/env python3
"""Checks the numbers of the live figures but the schedule's (check.py), in a site that is built: for
ten random settings each, those of the trainers' --dry-run, of the planner's clock, of ctypes' floats,
or of the lessons' formulas.

    site/figures/check_numbers.py SITE [--seed N]

Needs .ladder/venv-docs-test, and the release build.
"""

import argparse
import json
import os
import subprocess
import sys
from ctypes import c_float, c_uint32
from itertools import permutations
from math import ceil, frexp, log2, sqrt
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".ladder/venv-docs-test/bin/python"
if PYTHON.exists() and not os.environ.get("LADDER_IN_VENV"):
    os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "LADDER_IN_VENV": "1"})

sys.path.insert(1, str(ROOT / "scripts"))
from launcher.checkout import BUILD  # noqa: E402
from launcher.plan_time import Clock  # noqa: E402
from launcher.steps import trainer_in  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from stand_ins import expect  # noqa: E402

LESSONS = {
    "sums": "step3_naive_dp/exact_sums",
    "rounds": "step9_diloco",
    "collectives": "step1_ddp_reference/collectives",
    "memory": "docs/results",
    "buckets": "step4_bucketed_ddp",
}
SETTINGS = 10


class Figure:
    def __init__(self, page, site, name):
        self.page, self.name = page, name
        lesson = LESSONS[name]
        page_name = f"{lesson}.html" if lesson.startswith("docs") else f"{lesson}/index.html"
        self.address = (site / page_name).absolute().as_uri()
        self.open("")
        wasm = "theory" if name in ("memory", "buckets") else name
        page.evaluate(f"Ladder.load('{wasm}').then((ask) => {{ window.ask = ask; }})")

    def open(self, settings):
        self.page.goto("about:blank")
        self.page.goto(self.address + (f"#figure-{self.name}?{settings}" if settings else ""))
        self.page.wait_for_selector(f"#figure-{self.name} .figure-box", timeout=10000)

    def ask(self, request):
        return self.page.evaluate("(request) => window.ask(request)", request)

    def refusal(self, request):
        ask = "(request) => { try { window.ask(request); return ''; } catch (e) { return e.message; } }"
        return self.page.evaluate(ask, request)

    def text(self, selector=".figure-box"):
        return self.page.locator(f"#figure-{self.name} {selector}").first.text_content()


# ---- sums ---------------------------------------------------------------------------------------


def added(numbers):
    total = numbers[0]
    for number in numbers[1:]:
        total = c_float(total + number).value
    return total


def tree(numbers):
    if len(numbers) == 1:
        return numbers[0]
    left = 1 << (len(numbers) - 1).bit_length() - 1
    return c_float(tree(numbers[:left]) + tree(numbers[left:])).value


def bits(number):
    return f"{c_uint32.from_buffer(c_float(number)).value:08x}"


def sums(figure, random):
    for _ in range(SETTINGS):
        count = random.randint(2, 6)
        texts = [f"{random.uniform(-4, 4) * 10 ** random.randint(-2, 1):.4g}" for _ in range(count)]
        numbers = [c_float(float(text)).value for text in texts]
        found = figure.ask("numbers=" + "_".join(texts))
        wanted = [added(numbers), added(numbers[::-1]), tree(numbers)]
        expect(
            [each["bits"] for each in found["orders"]] == [*map(bits, wanted)], f"sums of {texts}"
        )
        different = {bits(added(list(order))) for order in permutations(numbers)}
        expect(found["sums"] == len(different), f"{found['sums']} sums of {texts}")
        # The lesson's formula: range = 32 √M · norm, where √M and the norm are rounded up to powers of two.
        above = lambda x: ceil(log2(x)) if frexp(x)[0] != 0.5 else frexp(x)[1] - 1  # noqa: E731
        norm = abs(sum(numbers))
        expect(found["range"] == 5 + above(sqrt(count)) + above(norm), f"range of {texts}")
        expect(found["quantum"] == found["range"] - 24, f"quantum of {texts}")
        quantum = 2.0 ** found["quantum"]
        rounded = [c_float(round(number / quantum) * quantum).value for number in numbers]
        if all(abs(number) <= 2.0 ** found["share"] for number in numbers):
            expect(
                found["sums_rounded"] == 1, f"{texts}: rounded first, {found['sums_rounded']} sums"
            )
            expect(found["orders"][0]["rounded_bits"] == bits(added(rounded)), f"rounded {texts}")
    expect("must be 2 to 7" in figure.refusal("numbers=1"), "one number is no sum")
    figure.open("numbers=0.1_0.2_0.3")
    expect(
        bits(added([c_float(x).value for x in (0.1, 0.2, 0.3)])) in figure.text(), "its own link"
    )


# ---- rounds -------------------------------------------------------------------------------------


def rounds(figure, random):
    for _ in range(SETTINGS):
        fragments = random.choice([1, 2, 4])
        every = fragments * random.randint(2, 10)
        delay, step, average = (
            random.randrange(every // fragments),
            10 * random.randint(1, 20),
            20 * random.randint(0, 60),
        )
        words = (
            f"sync_every={every}&fragments={fragments}&delay={delay}&step={step}&average={average}"
        )
        found = figure.ask(words)
        waits = 2 * fragments * max(0, average / fragments - delay * step)
        expect(
            abs(found["waited"] - waits) < 1e-6, f"{words}: waits {found['waited']}, not {waits}"
        )
        expect(abs(found["time"] - waits - 2 * every * step) < 1e-6, f"{words}: {found['time']}")
        options = [
            "--sync-every",
            every,
            "--fragments",
            fragments,
            "--sync-delay",
            delay,
            "--steps",
            2 * every,
        ]
        plan = facts("step9_diloco", options, 2)["ranks"][0]["plan"]
        sent = sum(send["times"] for send in plan if send["element_bytes"] == 4)
        expect(
            sent == found["rounds"] == len(found["flights"]),
            f"{words}: {found['rounds']} averages, not {sent}",
        )
    expect(
        "is not divisible" in figure.refusal("sync_every=10&fragments=4"),
        "fragments that do not divide",
    )
    expect(
        "must be from 0 to 4" in figure.refusal("sync_every=20&fragments=4&delay=5"), "a long delay"
    )


# ---- collectives ----------------------------------------------------------------------------------


def collectives(figure, random):
    for _ in range(SETTINGS):
        ranks, kilobytes = random.randint(2, 8), 100 * random.randint(0, 50)
        latency, bandwidth = 5 * random.randint(0, 100), random.randint(1, 100)
        words = f"ranks={ranks}&kilobytes={kilobytes}&latency={latency}&bandwidth={bandwidth}"
        found = figure.ask(words + random.choice(["&way=ring", ""]))
        numel = 250 * kilobytes
        largest = -(-numel // ranks)
        most = 4 * (numel + (ranks - 2) * largest)
        for way, number in (("direct", 2), ("ring", 2 * (ranks - 1))):
            cost = found["costs"][way]
            expect(cost["rounds"] == number, f"{words}: {cost['rounds']} rounds {way}")
            expect(
                cost["messages"] == 2 * (ranks - 1), f"{words}: {cost['messages']} messages {way}"
            )
            if numel % ranks == 0:
                expect(cost["bytes"] == most, f"{words}: {cost['bytes']} bytes {way}")
            ms = number * latency / 1000 + cost["bytes"] * 8 / bandwidth / 1e6
            expect(abs(cost["ms"] - ms) < 1e-9, f"{words}: {cost['ms']} ms {way}")
        whole = [cell["parts"] for row in found["states"][-1]["cells"] for cell in row]
        expect(whole == [ranks] * ranks**2, f"{words}: a sum is not complete")
    figure.open("collective=all_gather&way=ring&ranks=3")
    expect("Round 1 of 2" in figure.text(), "its own link")


# ---- memory and buckets ----------------------------------------------------------------------------


def run(step, words, ranks):
    command = [trainer_in(BUILD, step), *map(str, words), "--dry-run", str(ranks), "--json"]
    return subprocess.run(command, capture_output=True, text=True)


def facts(step, words, ranks):
    return json.loads(run(step, words, ranks).stdout)


def random_words(random):
    words = ["--layers", 2 * random.randint(1, 4), "--channels", 64 * random.randint(1, 4)]
    words += ["--num-microbatches", random.choice([1, 2, 4])] + random.choice(
        [[], ["--precision", "bf16"]]
    )
    words += random.choice(
        [[], ["--recompute", "blocks"], ["--recompute", "cheap"], ["--model", "llama"]]
    )
    return [*words, "--products", "blas"]  # by default, the faster ones of a machine


def memory(figure, random):
    steps = [step for step in figure.ask("steps") if step.startswith("step")]
    expect(len(steps) == 10, f"steps: {steps}")
    for step in [*random.sample(steps, SETTINGS - 1), "tensor_parallel"]:
        words, ranks = random_words(random), random.choice([2, 4])
        if step == "tensor_parallel":
            words += ["--tensor-ranks", 2]
        request = f"{step} {' '.join(map(str, words))} --dry-run {ranks} --json"
        printed = run(step, words, ranks)
        if printed.returncode:
            expect(figure.refusal(request) in printed.stderr, f"{request}: {printed.stderr}")
        else:
            expect(
                figure.ask(request) == json.loads(printed.stdout), f"{request} says something else"
            )
    figure.open(
        "model=smollm2-135m&ranks=4&context=256&rows=2&microbatches=4&precision=bf16&recompute=none"
    )
    words = "--model smollm2-135m --context 256 --micro-batch-size 2 --num-microbatches 4 --precision bf16 --products blas".split()
    held = facts("step5_zero1", words, 4)["ranks"][0]
    row = figure.page.locator("#figure-memory tr", has=figure.page.locator("th", has_text="step5"))
    titles = [bar.get_attribute("title") for bar in row.locator(".bytes i").all()]
    shown = [int(title.split(": ")[1].split()[0].replace(",", "")) for title in titles]
    wanted = [
        *(held["at_most"][part] for part in ("parameters", "gradients", "optimizer")),
        held["holds"]["communication"],
        held["working"],
    ]
    expect(shown == wanted, f"step 5 holds {shown}, not {wanted}")


def buckets(figure, random):
    clock = Clock(BUILD)
    for _ in range(SETTINGS):
        words = [
            "--layers",
            random.randint(1, 8),
            "--bucket-mb",
            random.choice([0.1, 0.5, 2]),
            "--products",
            "blas",
        ]
        ranks, link, speed = (
            random.randint(2, 8),
            (5 * random.randint(0, 40), random.randint(1, 50) / 10),
            (random.randint(1, 20) / 20, 10),
        )
        request = f"step4_bucketed_ddp {' '.join(map(str, words))} --dry-run {ranks} --json --link {link[0]}:{link[1]} --speed {speed[0]}:{speed[1]}"
        found, said = figure.ask(request)["clock"], facts("step4_bucketed_ddp", words, ranks)
        planned = clock.estimate(said, clock.said_speed(said, *speed), (link, None))
        expect(
            abs(found["step_s"] / planned.step_s - 1) < 1e-12,
            f"{request}: {found['step_s']} s, not {planned.step_s}",
        )
        expect(
            abs(found["waiting_s"] - planned.waiting_s) < 1e-12,
            f"{request}: waits {found['waiting_s']}",
        )
        ends = max(end for rank, lane, begin, end, *_ in found["spans"])
        expect(abs(ends - found["step_s"]) < 1e-9, f"{request}: the time line ends at {ends}")
    expect("With buckets" in figure.text(), "nothing is said")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = chromium.new_page()
        for check in (sums, rounds, collectives, memory, buckets):
            check(Figure(page, arguments.site, check.__name__), Random(arguments.seed))
        chromium.close()
    print("the figures' numbers are those of the trainers, the clock and the formulas")


if __name__ == "__main__":
    main()
