#!/usr/bin/env python3
"""Checks the live figures in headless Chromium: what they say must be what the trainers say.

    site/figures/check.py [--seed N] [--keep FOLDER]

The pipeline schedule: for ten random settings, its text equals what `--show-schedule` prints;
costs are compared with formulas. Moves by mouse and keyboard, legal and not, reasons of gaps,
permalinks, levels, the still without JavaScript or WebAssembly, a phone's width. Needs
.ladder/venv-docs-test (`./ladder test site` makes it), zig (site/figures/compile.py) and the release
build of step 8. With --keep, screenshots and the page are left there, to be looked at.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".ladder/venv-docs-test/bin/python"
if PYTHON.exists() and not os.environ.get("LADDER_IN_VENV"):
    os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "LADDER_IN_VENV": "1"})

sys.path.insert(1, str(ROOT / "scripts"))
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from compile import compile_all  # noqa: E402
from launcher.checkout import BUILD  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from stand_ins import expect  # noqa: E402

TRAINER = BUILD / "step8_pipeline_ga/step8_pipeline_ga"
STILL = "step8_pipeline_ga/timeline_zero_bubble.svg"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Live figures</title><link rel="stylesheet" href="figures.css"><script defer src="wasm.js"></script>
<script defer src="schedule.wasm.js"></script><script defer src="schedule.js"></script>
<style>body { margin: auto; max-width: 46rem; padding: 0 .75rem; font: 1rem sans-serif }
@media (prefers-color-scheme: dark) { body { background: #131416; color: #ddd } }</style>
<body data-theme="auto"><main><p>Before it.</p><div class="live-figure" data-figure="schedule" id="figure-schedule">
<img src="still.svg" alt="the still"></div><p>After it.</p></main></body></html>"""
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"], "preload": False}


def make_page(folder):
    expect("schedule" in compile_all(folder), "the figures cannot be compiled")
    shutil.copy(ROOT / STILL, folder / "still.svg")
    (folder / "index.html").write_text(PAGE)


class Figure:
    """The figure on a page of its own, opened with a permalink's settings."""

    def __init__(self, context, folder, settings=""):
        self.page = context.new_page()
        self.page.set_default_timeout(5000)
        self.complaints = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.open(folder, settings)

    def open(self, folder, settings):
        link = f"#figure-schedule?{settings}" if settings else ""
        self.page.goto("about:blank")
        self.page.goto(f"{(folder / 'index.html').as_uri()}{link}")
        self.page.wait_for_function("document.querySelector('.figure-box')", timeout=3000)

    def text(self, selector):
        return self.page.locator(selector).text_content()

    def says(self):
        return self.text(".says")

    def slots(self):
        return float(self.text(".sum b >> nth=0"))

    def settings(self):
        """Those of the address."""
        link = self.page.evaluate("location.hash").partition("?")[2]
        return dict(pair.split("=") for pair in link.split("&"))

    def order(self, stage):
        """The names of a stage's computations, from left to right."""
        row = self.text(f".figure-box tbody tr:nth-child({stage + 1}) td:last-child")
        return [part.split()[0] for part in row.split(", ") if not part.startswith("idle")]

    def cell(self, stage, name):
        return self.page.locator(f'[aria-label^="{name} on stage {stage}:"]')

    def gap(self, stage, nth=0):
        return self.page.locator(f".idle[aria-label^='Stage {stage} is idle'] >> nth={nth}")

    def move(self, stage, name, steps):
        """With the keyboard."""
        self.cell(stage, name).focus()
        for _ in range(abs(steps)):
            self.page.keyboard.press(f"Shift+Arrow{'Left' if steps < 0 else 'Right'}")

    def drag(self, stage, name, before, release=True):
        """Drops one on the left edge of another one."""
        begin, end = (self.cell(stage, each).bounding_box() for each in (name, before))
        self.page.mouse.move(begin["x"] + begin["width"] / 2, begin["y"] + 10)
        self.page.mouse.down()
        self.page.mouse.move(end["x"] + 1, begin["y"] + 12, steps=8)
        if release:
            self.page.mouse.up()


def printed(schedule, stages, microbatches, chunks):
    words = [
        "--pipeline-schedule",
        schedule,
        "--pipeline-stages",
        stages,
        "--num-microbatches",
        microbatches,
    ]
    command = [TRAINER, "--show-schedule", *words, "--chunks-per-stage", chunks]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    return done.stdout.partition("\n")[2]  # without its title


# ---- checks -------------------------------------------------------------------------------------


def numbers_are_those_of_the_trainer(figure, folder, random):
    for _ in range(10):
        schedule = random.choice(["gpipe", "1f1b", "interleaved", "zero-bubble"])
        stages = random.randint(2, 8)
        microbatches = random.randint(stages, 24)
        chunks = random.randint(2, 4) if schedule == "interleaved" else 1
        link = f"schedule={schedule}&stages={stages}&microbatches={microbatches}&chunks={chunks}"
        wanted = printed(schedule, stages, microbatches, chunks)
        figure.open(folder, link)
        found = figure.text("pre")
        # The trainer's slot is a chunk's forward, the figure's that of all chunks of a stage.
        slots, rest = re.search(r"^([\d.e+]+)( slots; .*)", wanted, re.MULTILINE).groups()
        expect(
            abs(figure.slots() * chunks - float(slots)) <= 0.005 * float(slots),
            link,
            slots,
            figure.slots(),
        )
        without = re.compile(r"^[\d.e+]+ slots", re.MULTILINE)
        expect(without.sub("", found) == without.sub("", wanted), link, found, wanted)
        ideal, total, live = re.search(
            r"bubble: (\S+)% of .* (\S+)% of .*: ([\d, ]+)", rest
        ).groups()
        shown = [each.strip("%") for each in figure.page.locator(".sum b").all_text_contents()[1:]]
        expect(
            [float(shown[0]), float(shown[1]), shown[2]]
            == [float(ideal), float(total), live.strip()],
            link,
            shown,
            rest,
        )
        rows = figure.page.locator(".figure-box tbody td:nth-child(2)").all_text_contents()
        expect(", ".join(rows) == live.strip(), link, rows, live)


def the_dry_run_has_the_same_order(figure, folder, random):
    command = [
        TRAINER,
        "--dry-run",
        "4",
        "--json",
        "--pipeline-schedule",
        "zero-bubble",
        "--num-microbatches",
        "6",
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    planned = json.loads(done.stdout)
    figure.open(folder, "schedule=zero-bubble&stages=4&microbatches=6")
    for stage, actions in enumerate(planned["schedule"]["stages"]):
        wanted = [re.sub(r"(\w)\d+\.(\d+)", r"\1\2", action) for action in actions]
        expect(figure.order(stage) == wanted, figure.order(stage), wanted)


def costs_are_those_of_the_formulas(figure, folder, random):
    for _ in range(3):
        p, m = random.randint(2, 6), random.randint(6, 12)
        forward, dgrad, wgrad, message = (random.randint(1, 12) / 4 for _ in range(4))
        hidden = (
            random.randint(1, round(4 * min(forward, dgrad))) / 4
        )  # a wgrad that fits into gaps
        for schedule, wgrad, message, wanted in (
            (
                "gpipe",
                wgrad,
                message,
                (m + p - 1) * (forward + dgrad + wgrad) + 2 * (p - 1) * message,
            ),
            (
                "zero-bubble",
                hidden,
                0,
                m * (forward + dgrad + hidden) + (p - 1) * (forward + dgrad - hidden),
            ),
        ):
            costs = f"forward={forward}&dgrad={dgrad}&wgrad={wgrad}&message={message}"
            figure.open(folder, f"schedule={schedule}&stages={p}&microbatches={m}&{costs}")
            expect(
                abs(figure.slots() - wanted) <= 0.0006 * wanted,
                schedule,
                p,
                m,
                costs,
                figure.slots(),
                wanted,
            )


def illegal_moves_are_refused_with_a_reason(figure, folder, random):
    figure.open(folder, "schedule=1f1b&stages=3&microbatches=4")
    before = [figure.order(stage) for stage in range(3)]
    figure.move(1, "F0", 2)
    expect(
        "B0 cannot" not in figure.says()
        and "F0 cannot go there. Stage 1: B0 comes before F0" in figure.says(),
        figure.says(),
    )
    expect(
        figure.order(1) == ["F1", "F0", *before[1][2:]], figure.order(1)
    )  # its first step was right
    figure.drag(0, "B2", "B1")
    expect("summed out of order" in figure.says(), figure.says())
    figure.drag(0, "B0", "F1")
    expect(
        "deadlock: stage 0 waits for B0 of stage 1, which waits for F1 of stage 0".lower()
        in figure.says().lower(),
        figure.says(),
    )
    expect([figure.order(0), figure.order(2)] == [before[0], before[2]], "a refused move was made")
    expect(
        "moves" in figure.settings() and figure.settings()["moves"] == "1.0.1", figure.settings()
    )


def moves_by_mouse_and_keyboard_are_the_same(figure, folder, random):
    links = []
    for by in ("mouse", "keyboard"):
        figure.open(folder, "schedule=gpipe&stages=2&microbatches=4")
        if by == "mouse":
            figure.drag(1, "B0", "F2", release=False)
            expect("B0 here: 15 slots, live: 4, 3." == figure.says(), figure.says())
            figure.page.mouse.up()
        else:
            figure.move(1, "B0", -2)
        expect(figure.order(1)[:4] == ["F0", "F1", "B0", "F2"], by, figure.order(1))
        links.append(figure.settings())
    expect(links[0] == links[1] and links[0]["moves"] == "1.4.2", *links)
    label = figure.page.evaluate("document.activeElement.getAttribute('aria-label')")
    expect(label.startswith("B0 on stage 1"), "the focus is lost", label)
    figure.page.get_by_role("button", name="Undo").click()
    expect("moves" not in figure.settings() and figure.order(1)[2] == "F2", figure.settings())


def arrow_keys_reach_everything(figure, folder, random):
    figure.open(folder, "schedule=1f1b&stages=3&microbatches=3")
    figure.page.locator("#figure-schedule-message").focus()
    figure.page.keyboard.press("Tab")
    label = "document.activeElement.getAttribute('aria-label')"
    expect(figure.page.evaluate(label).startswith("F0 on stage 0"), figure.page.evaluate(label))
    seen = []
    for arrow in ("ArrowRight", "ArrowDown", "Home", "ArrowDown"):
        for _ in range(30 if arrow == "ArrowRight" else 1):
            figure.page.keyboard.press(arrow)
            seen.append(figure.page.evaluate(label))
    row = [each for each in dict.fromkeys(seen[:30])]
    expect(len(row) == 9 - 1 and any("is idle" in each for each in row), *row)
    expect(
        "tage 1" in seen[30] and "tage 1 is idle from 0 to 1" in seen[31] and "tage 2" in seen[32],
        seen[30:],
    )


def gaps_say_why(figure, folder, random):
    figure.open(folder, "schedule=1f1b&stages=4&microbatches=8&message=0.5")
    figure.gap(0).click()
    says = figure.says()
    expect(
        "Stage 0 is idle from 4 to 13. Its next computation, B0, needs the gradient from B0 on stage 1, which ends at 12.5; the message takes another 0.5."
        in says,
        says,
    )
    expect(figure.page.locator(".chain").count() == 1, "the way to the gap is not drawn")
    figure.gap(3, -1).click()
    expect("has done all of its work" in figure.says(), figure.says())


def permalinks_restore_everything(figure, folder, random):
    figure.open(folder, "")
    figure.page.get_by_text("1F1B", exact=True).click()
    figure.page.locator("#figure-schedule-stages").fill("3")
    figure.page.locator("#figure-schedule-message").fill("0.75")
    heard = figure.text(".heard")
    expect(heard.startswith(f"{figure.slots():g} slots, live: 3, 2, 1; bubble: "), heard)
    figure.move(0, "F3", -1)
    wanted = [figure.page.evaluate("location.href"), figure.slots(), figure.order(0)]
    expect(
        "stages=3" in wanted[0] and "message=0.75" in wanted[0] and "moves=" in wanted[0], wanted
    )
    figure.open(folder, wanted[0].partition("?")[2])
    found = [figure.page.evaluate("location.href"), figure.slots(), figure.order(0)]
    expect(found == wanted, found, wanted)
    expect(figure.page.locator("#figure-schedule-message").input_value() == "0.75", "the slider")
    figure.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    figure.page.get_by_role("button", name="Copy link").click()
    figure.page.wait_for_function("document.querySelector('.says').textContent.includes('copied')")
    expect(
        figure.page.evaluate("navigator.clipboard.readText()") == wanted[0],
        "another link is copied",
    )


def wrong_links_are_refused(figure, folder, random):
    for link, reason in (
        ("stages=99", "stages is '99': it must be a number from 1 to 8"),
        ("stages=2.5", "must be a whole number"),
        ("schedule=faster", "no schedule 'faster'"),
        ("schedule=1f1b&chunks=2", "has one chunk per stage, not 2"),
        ("level=9", "no level '9'"),
        ("moves=0.4.0&stages=2&schedule=gpipe&microbatches=4", "B0 comes before F0"),
        ("moves=7.0.1", "the stage of the move"),
        ("color=red", "no setting 'color'"),
    ):
        figure.open(folder, link)
        expect(reason in figure.says() and "cannot be opened" in figure.says(), link, figure.says())
        expect(figure.slots() == 27, "what is shown instead of", link)


def levels_can_be_won(figure, folder, random):
    """Each is brought to the order that its par is of; the last one, to one with an eager start."""
    options = figure.page.locator(".figure-box select option")
    levels = [each.get_attribute("value") for each in options.all()][1:]
    wins = {
        "forget-sooner": "1f1b&stages=2&microbatches=4",
        "three-stages": "1f1b&stages=3&microbatches=5",
        "fill-the-gaps": "zero-bubble&stages=3&microbatches=5",
        "hide-the-messages": None,
    }
    expect(levels == list(wins), levels)
    eager = [
        "F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5".split(),
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5".split(),
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5".split(),
    ]
    for level, link in wins.items():
        wanted = eager
        if link:
            figure.open(folder, f"schedule={link}")
            wanted = [
                figure.order(stage) for stage in range(int(re.search(r"stages=(\d)", link)[1]))
            ]
        figure.open(folder, f"level={level}")
        expect(figure.page.locator(".goals .met").count() < 2, level, "is won before it begins")
        expect(
            not figure.page.locator(".choices").is_visible(), level, "lets one change the settings"
        )
        for stage in reversed(range(len(wanted))):
            for place, name in enumerate(wanted[stage]):
                steps = place - figure.order(stage).index(name)
                if steps:
                    figure.move(stage, name, steps)
            expect(
                figure.order(stage) == wanted[stage],
                level,
                stage,
                figure.order(stage),
                figure.says(),
            )
        expect(figure.page.locator(".goals .met").count() == 2, level, figure.text(".goals"))
        expect(
            re.match(r"(Par|Better than the step’s own schedule), in \d+ moves: ", figure.says()),
            level,
            figure.says(),
        )
        expect(figure.settings()["level"] == level, figure.settings())


def it_fits_a_phone_and_can_be_read(figure, folder, random):
    for scheme in ("light", "dark"):
        figure.page.emulate_media(color_scheme=scheme)
        for link in ("schedule=interleaved&chunks=2", "level=forget-sooner"):
            figure.open(folder, link)
            figure.page.evaluate(
                "for (const each of document.querySelectorAll('details')) each.open = true"
            )
            for violation in Axe().run(figure.page, options=AXE).response["violations"]:
                expect(
                    False,
                    scheme,
                    link,
                    violation["id"],
                    [node["html"][:200] for node in violation["nodes"]],
                )
    figure.page.set_viewport_size({"width": 360, "height": 740})
    for link in (
        "schedule=interleaved&chunks=4&stages=8&microbatches=24",
        "level=hide-the-messages",
    ):
        figure.open(folder, link)
        figure.page.evaluate(
            "for (const each of document.querySelectorAll('details')) each.open = true"
        )
        width = figure.page.evaluate("document.documentElement.scrollWidth")
        expect(width <= 360, link, "is", width, "pixels wide")
    figure.page.set_viewport_size({"width": 1280, "height": 900})
    figure.page.emulate_media(color_scheme="light")


def stills_stay(browser, folder):
    """Without JavaScript, without what was compiled, and without WebAssembly."""
    (folder / "bare.html").write_text(
        PAGE.replace('<script defer src="schedule.wasm.js"></script>', "")
    )
    for what, name, options, script in (
        ("no JavaScript", "index.html", {"java_script_enabled": False}, ""),
        ("nothing compiled", "bare.html", {}, ""),
        ("no WebAssembly", "index.html", {}, "delete window.WebAssembly"),
    ):
        context = browser.new_context(**options)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        page.goto((folder / name).as_uri())
        page.wait_for_timeout(200)
        expect(page.locator("img[alt='the still']").is_visible(), what)
        expect(page.locator(".figure-box").count() == 0, what)
        context.close()


def fingers_drag_and_scroll(browser, folder):
    phone = {"width": 360, "height": 740}
    context = browser.new_context(viewport=phone, has_touch=True, is_mobile=True)
    figure = Figure(context, folder, "schedule=gpipe&stages=2&microbatches=8")
    fingers = context.new_cdp_session(figure.page)

    def swipe(box, by, hold_ms):
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for step in range(12):
            point = {"x": x + by * step / 11, "y": y}
            kind = "touchMove" if step else "touchStart"
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
            figure.page.wait_for_timeout(0 if step else hold_ms)
        fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    begin, end = (figure.cell(1, name).bounding_box() for name in ("F7", "F6"))
    swipe(begin, end["x"] - begin["x"] - 8, hold_ms=500)
    expect(
        figure.order(1)[6:8] == ["F7", "F6"],
        "a finger drags nothing:",
        figure.order(1),
        figure.says(),
    )
    swipe(figure.gap(0).bounding_box(), -100, hold_ms=0)
    figure.page.wait_for_function("document.querySelector('.scroll').scrollLeft > 50")
    context.close()


CHECKS = (
    numbers_are_those_of_the_trainer,
    the_dry_run_has_the_same_order,
    costs_are_those_of_the_formulas,
    illegal_moves_are_refused_with_a_reason,
    moves_by_mouse_and_keyboard_are_the_same,
    arrow_keys_reach_everything,
    gaps_say_why,
    permalinks_restore_everything,
    wrong_links_are_refused,
    levels_can_be_won,
    it_fits_a_phone_and_can_be_read,
)
ON_THEIR_OWN = (stills_stay, fingers_drag_and_scroll)


def screenshots(figure, folder):
    for name, scheme, width, link in (
        ("light", "light", 800, ""),
        ("dark", "dark", 800, "schedule=interleaved&chunks=2"),
        ("level", "light", 800, "level=fill-the-gaps"),
        ("phone", "light", 360, "schedule=1f1b"),
        ("phone-dark", "dark", 360, "level=hide-the-messages"),
    ):
        figure.page.set_viewport_size({"width": width, "height": 900})
        figure.page.emulate_media(color_scheme=scheme)
        figure.open(folder, link)
        if figure.page.locator(".idle").count():
            figure.gap(0).click()
        figure.page.wait_for_timeout(400)
        figure.page.screenshot(path=folder / f"{name}.png", full_page=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random settings")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    failed = []
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ladder-figures-"))
        )
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        make_page(folder)
        program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
        )
        figure = Figure(context, folder)
        for check in CHECKS:
            began = time.monotonic()
            try:
                check(figure, folder, Random(arguments.seed))
            except Exception as error:
                failed.append(f"FAILED: {check.__name__}: {error}")
            if arguments.keep:
                print(f"{time.monotonic() - began:5.1f} s  {check.__name__}")
        for check in ON_THEIR_OWN:
            try:
                check(browser, folder)
            except Exception as error:
                failed.append(f"FAILED: {check.__name__}: {error}")
        failed += [f"FAILED: the console says: {each}" for each in figure.complaints]
        if arguments.keep:
            screenshots(figure, folder)
        browser.close()
    print(
        *failed,
        f"live figures, seed {arguments.seed}: {len(CHECKS + ON_THEIR_OWN)} checks, {len(failed)} failed",
        sep="\n",
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
