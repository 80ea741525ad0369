#!/usr/bin/env python3
"""Visits the results of a built site in a browser, as its readers do.

    site/results/check.py SITE [RUNS]      SITE: what ./ladder docs has built; RUNS: where its run of the ladder is

Prints what is wrong; exit code 1 if something is. scripts/check_site calls check() as well. Needs playwright
(scripts/requirements-docs-test.txt), which drives the Chromium that is installed.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("../scripts", "")]

from launcher.checkout import ROOT  # noqa: E402
from launcher.tables import read_table  # noqa: E402
from results.pages import CAST, last_run, read_cast  # noqa: E402

VIEWER = "Ladder.groups[0].viewers[0]"
RANGE = "[Ladder.groups[0].range.begin, Ladder.groups[0].range.end]"
# The contrast of each text with what is behind it: (ratio, words) of the worst.
CONTRAST = """(selectors) => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$|transparent/.test(color)) return color;
    }
    return "white";
  };
  const found = [];
  for (const node of document.querySelectorAll(selectors)) {
    if (!node.textContent.trim()) continue;
    const isDrawn = node instanceof SVGElement, kind = isDrawn && /^on-(.*)/.exec(node.getAttribute("class") || "");
    const slice = kind && document.querySelector(`svg .slice.${kind[1]}`);
    const [a, b] = [getComputedStyle(node)[isDrawn ? "fill" : "color"], slice ? getComputedStyle(slice).fill : behind(node)].map(light);
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `${node.getAttribute("class")} ${node.textContent.slice(0, 30)}`]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}"""
# What is cut off at the right, and cannot be scrolled to.
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll("article *:not(svg *)")].filter((node) => {
  if (Math.max(node.getBoundingClientRect().right, node === document.documentElement ? node.scrollWidth : 0) <= innerWidth + 1) return false;
  for (let over = node.parentElement; over && over.localName !== "article"; over = over.parentElement)
    if (/auto|scroll/.test(getComputedStyle(over).overflowX)) return false;
  return true;
}).map((node) => node.localName + "." + node.className).slice(0, 3)"""


class Site:
    """The pages of a built site; what goes wrong in any of them is a fault."""

    def __init__(self, browser, folder, runs):
        self.browser, self.folder, self.runs = browser, Path(folder).resolve(), runs
        self.faults = []

    def names(self):
        """Of the lessons that have a time line here."""
        return sorted(page.stem for page in self.folder.glob("results/time_lines/*.html") if page.stem != "index")  # fmt: skip

    def open(self, page, width=1280, scripts=True, **options):
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, java_script_enabled=scripts, **options
        )
        opened = context.new_page()
        opened.on("pageerror", lambda error: self.faults.append(f"{page}: {error}"))
        opened.on("request", lambda request: self.heed(page, request.url))
        address, _, fragment = page.partition("#")
        opened.goto(f"{(self.folder / address).as_uri()}{'#' if fragment else ''}{fragment}")
        return opened

    def heed(self, page, url):
        if not url.startswith(("file:", "data:", "blob:")):
            self.faults.append(f"{page}: asks for {url}")

    def time_line(self, name, **options):
        return self.open(f"results/time_lines/{name}.html", **options)


def expect(is_right, what):
    if not is_right:
        raise AssertionError(what)


def check_slices(site):
    """The viewer has every slice of the trace, with its bytes, and draws those of the step."""
    for name in site.names():
        trace = json.loads((site.folder / f"_static/results/{name}.trace.json").read_text())
        events = [each for each in trace["traceEvents"] if each["ph"] == "X"]
        events = [each for each in events if each["cat"] != "arrival" and each["name"] != "step"]
        wanted = Counter(
            (each["pid"] - 1, each["name"], json.dumps(each["args"])) for each in events
        )
        page = site.time_line(name)
        found = page.evaluate(
            f"{VIEWER}.slices.map((one) => [one.rank, one.name, one.args, one.begin, one.end])"
        )
        counted = Counter((rank, title, json.dumps(args)) for rank, title, args, *_ in found)
        expect(counted == wanted, f"{name}: other slices than in the trace: {list(((counted - wanted) + (wanted - counted)).items())[:3]}")  # fmt: skip
        times = Counter(
            (round(1000 * e["ts"]), round(1000 * e["dur"]))
            for e in events
            if "from" not in e["args"]
        )
        shown = Counter((b, e - b) for *_, args, b, e in found if "from" not in args)
        expect(times.keys() == shown.keys(), f"{name}: other times than in the trace")
        ends = {kind: {e["id"] for e in trace["traceEvents"] if e["ph"] == kind} for kind in "sf"}
        messages = page.evaluate(f"{VIEWER}.messages.length")
        expect(messages == len(ends["s"] & ends["f"]), f"{name}: {messages} messages are arrows")
        begin, end = (page.evaluate(f"{VIEWER}.origin + {RANGE}[{i}]") for i in (0, 1))
        in_view = sum(b <= end and e >= begin for *_, b, e in found)
        drawn = page.locator("figure").first.locator("rect[data-slice]").count()
        expect(drawn == in_view > 50, f"{name}: {drawn} slices are drawn, of {in_view}")
        page.context.close()


def click_slice(page, which):
    """Clicks the first slice in view that fulfils this."""
    place = page.evaluate(
        f"""() => {{ const viewer = {VIEWER}, all = viewer.slices, at = viewer.svg.getBoundingClientRect();
        const [x, y, w, h] = viewer.boxes.find(([x, y, w, h, i]) => w > 3 && x > viewer.left && x + w < viewer.right && ((one) => {which})(all[i]));
        return [at.x + x + w / 2, at.y + y + h / 2]; }}"""
    )
    page.mouse.move(*place)
    page.mouse.click(*place)
    return page.locator("figure output").first.inner_text()


def check_names(site):
    """A click says what is sent, by whom, and who waits; the other ranks' slices are marked."""
    page = site.time_line("step4_bucketed_ddp")
    said = click_slice(
        page, 'one.args.label === "bucket 6" && one.what === 2 && one.begin > viewer.origin'
    )
    for words in ("rank 0: all_reduce: bucket 6", "bytes among all 2 ranks; this rank sends ", "On rank 1, all_reduce is in flight for ", "Rank 1 waits for it for "):  # fmt: skip
        expect(words in said, f"a click says {said!r}, without {words!r}")
    expect(page.locator("figure >> nth=0 >> rect.lit").count() >= 4, "the pair is not marked")
    expect(
        "bucket 6" in page.locator(".ladder-tip").first.inner_text(),
        "nothing is said of what is pointed at",
    )
    page.context.close()
    page = site.time_line("step8_pipeline_ga")
    said = click_slice(page, "one.args.from === 0 && one.what === 2")
    expect("bytes from rank 0 to rank 1, tag" in said, f"of a message it says {said!r}")
    page.context.close()


def check_moves(site):
    """Keys, mouse and wheel move and zoom; the address keeps what is seen; two time lines have one axis."""
    page = site.time_line("step4_bucketed_ddp")
    line = page.locator("figure svg").first

    def change(act):
        before = page.evaluate(RANGE)
        act()
        after = page.evaluate(RANGE)
        return [
            (after[1] - after[0]) / (before[1] - before[0]),
            (after[0] - before[0]) / (before[1] - before[0]),
        ]

    line.focus()
    press = page.keyboard.press
    home = page.evaluate(RANGE)
    expect(abs(change(lambda: press("+"))[0] - 1 / 1.5) < 1e-6, "+ does not zoom")
    expect(abs(change(lambda: press("ArrowRight"))[1] - 0.15) < 1e-6, "→ does not move")
    expect(abs(change(lambda: press("ArrowLeft"))[1] + 0.15) < 1e-6, "← does not move")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.move(*middle)

    def drag():
        page.mouse.down()
        page.mouse.move(middle[0] - 90, middle[1], steps=5)
        page.mouse.up()

    expect(change(drag)[1] > 0.05, "dragging does not move")
    expect(
        change(lambda: (page.mouse.wheel(0, -200), page.wait_for_timeout(100)))[0] < 0.9,
        "the wheel does not zoom",
    )
    length, begin = page.evaluate(RANGE), page.evaluate(f"{VIEWER}.time({VIEWER}.left)")
    expect(
        page.evaluate(f"Ladder.groups[0].viewers[1].time({VIEWER}.left)") == begin,
        "two axes differ",
    )
    page.wait_for_timeout(400)
    page.reload()
    found = page.evaluate(RANGE)
    expect(
        all(abs(a - b) < 1000 for a, b in zip(found, length)),
        f"the address has kept {found}, not {length}",
    )
    line.focus()
    press("0")
    expect(page.evaluate(RANGE) == home, "0 does not fit")
    press("Enter")
    first = page.locator("figure output").first.inner_text()
    press("ArrowDown")
    second = page.locator("figure output").first.inner_text()
    press("Shift+ArrowRight")
    third = page.locator("figure output").first.inner_text()
    expect(
        "rank 0" in first and len({first, second, third}) == 3,
        f"keys name {first!r}, {second!r}, {third!r}",
    )
    page.context.close()


def check_touch(site):
    """One finger moves, two zoom around what they hold, a tap names."""
    page = site.time_line("step7_zero3", width=390, has_touch=True)
    line = page.locator("figure svg").first
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    y, hand = box["y"] + 60, page.context.new_cdp_session(page)

    def touch(kind, *xs):
        points = [{"x": x, "y": y, "id": i} for i, x in enumerate(xs)]
        hand.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    def swipe(*places):
        touch("Start", *places[0])
        for place in places[1:]:
            touch("Move", *place)
        touch("End")
        return page.evaluate(RANGE)

    begin, end = page.evaluate(RANGE)
    moved = swipe([200], [180], [140], [100])
    expect(
        moved[0] > begin and abs(moved[1] - moved[0] - (end - begin)) < 1,
        f"a finger moves to {moved}",
    )
    zoomed = swipe([150, 250], [130, 270], [100, 300])
    expect(zoomed[1] - zoomed[0] < 0.7 * (end - begin), f"two fingers zoom to {zoomed}")
    page.touchscreen.tap(box["x"] + 200, y)
    expect("rank 0" in page.locator("figure output").first.inner_text(), "a tap names nothing")
    page.context.close()


def check_looks(site):
    """No page is wider than a phone; every text can be read, in the light and in the dark."""
    pages = ["ladder", "judge", *(f"time_lines/{name}" for name in ["index", *site.names()])]
    for page in pages:
        opened = site.open(f"results/{page}.html", width=360, has_touch=True)
        found = opened.evaluate(TOO_WIDE)
        expect(not found, f"{page} is wider than a phone of 360 pixels: {found}")
        opened.context.close()
    texts = "figure svg text, figure output, figcaption, .ladder-keys, .ladder-legend li, .ladder-bar button, .ladder-table :is(th, td), .ladder-replay :is(span, button, label), .ladder-said span"
    for page in ["ladder", "judge", "time_lines/step7_zero3", "time_lines/tensor_parallel"]:
        for scheme in ("light", "dark"):
            opened = site.open(f"results/{page}.html", color_scheme=scheme)
            ratio, words = opened.evaluate(CONTRAST, texts)
            expect(ratio >= 4.5, f"{page} in {scheme}: the contrast of {words!r} is {ratio:.2f}")
            opened.context.close()


def check_replay(site):
    """The recording is all there, plays to its last line, and starts only when asked to."""
    _, printed = read_cast(CAST)
    text = "".join(part for _, part, _ in printed)
    page = site.open("results/judge.html")
    expect(page.locator("#ladder-said").text_content() == text, "the text is not what was recorded")
    seen = ".ladder-screen > :not([hidden])"
    everything = page.locator(seen).count()
    page.wait_for_timeout(100)
    expect(page.locator(seen).count() == everything, "it plays before anybody asks")
    slider, button = page.locator(".ladder-replay input"), page.locator(".ladder-replay button")
    slider.fill("0")
    expect(0 < page.locator(seen).count() < everything / 2, "the slider does not go back")
    slider.fill(str(round(float(slider.get_attribute("max")) - 2.5, 1)))
    before = page.locator(seen).count()
    page.locator(".ladder-replay select").select_option("4")
    button.click()
    expect(button.inner_text() == "Pause", "it does not play")
    page.wait_for_function("document.querySelector('.ladder-replay button').textContent === 'Play'")
    last = page.locator(seen).last.text_content()
    expect(
        before < everything == page.locator(seen).count() and text.endswith(last),
        f"it ends with {last!r}",
    )
    page.context.close()


def check_without_scripts(site):
    """A still picture of the same trace, the tables and the text are there without JavaScript."""
    page = site.time_line("step4_bucketed_ddp", scripts=False)
    picture = page.locator("figure img").first
    expect(picture.bounding_box()["height"] > 100, "there is no picture")
    expect(page.locator(".ladder-table td").count() > 10, "there are no tables")
    page.context.close()


def check_table(site):
    """The page has the cells that were printed."""
    page, run = site.open("results/ladder.html"), last_run(site.runs)
    found = page.evaluate(
        "[...document.querySelectorAll('.ladder-table tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    printed = read_table((run / "table.md").read_text()) if run else []
    wanted = [line for line in printed if set(line[0]) != {"-"}]
    expect(found == wanted, f"the table has {found[:2]}, not {wanted[:2]}")
    heads = page.locator(".ladder-table tbody th[scope=row]").count()
    expect(heads == sum(line[0] != "rung" for line in wanted), "not every row has a head")
    page.context.close()


CHECKS = [
    check_slices,
    check_names,
    check_moves,
    check_touch,
    check_looks,
    check_replay,
    check_without_scripts,
    check_table,
]


def check(browser, folder, runs=ROOT / "runs"):
    """Returns what is wrong, a line each."""
    site, faults = Site(browser, folder, runs), []
    if not site.names():
        return ["results: no time line is there: ./ladder docs --measure makes them"]
    for one in CHECKS:
        try:
            one(site)
        except Exception as error:  # noqa: BLE001: of a page that does not answer as well
            faults.append(f"{one.__name__}: {error}")
    return faults + site.faults


def main(folder, runs=ROOT / "runs"):
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        faults = check(browser, folder, Path(runs))
        browser.close()
    print("\n".join(faults) or "results: all checks of the pages pass")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
