// The live figure of DiLoCo's rounds. All times come from rounds.cpp.
Ladder.start("rounds", (root, ask) => {
  const { element } = Ladder;
  const ROW = 30, HEAD = 22;
  const rounded = (value) => String(Number(value.toPrecision(3)));

  function bar(x, y, width, kind, title) {
    return element("svg:rect", { x, y, width: Math.max(width, 0.5), height: ROW - 8, class: kind }, element("svg:title", {}, title));
  }

  function draw(answer) {
    const room = Math.max(560, content.clientWidth - 4), unit = (room - 8) / answer.time, x = (ms) => 4 + ms * unit;
    const compute = answer.steps.map(([begin, end], i) => bar(x(begin), HEAD, (end - begin) * unit - 0.5, "computing", `inner step ${i + 1}`));
    const waits = answer.waits.map(([begin, end]) => bar(x(begin), HEAD, (end - begin) * unit, "waiting", `waits ${rounded(end - begin)} ms`));
    const flights = answer.flights.flatMap(({ fragment, begin, end }) => {
      const wide = (end - begin) * unit > 14;
      return [bar(x(begin), HEAD + ROW, (end - begin) * unit, `flight f${fragment % 4}`, `fragment ${fragment} is averaged for ${rounded(end - begin)} ms`),
        ...(wide ? [element("svg:text", { x: x((begin + end) / 2), y: HEAD + ROW + 15, "text-anchor": "middle", class: "on" }, String(fragment))] : [])];
    });
    const step = [100, 200, 500, 1000, 2000, 5000, 10000, 20000].find((each) => each * unit > 70) ?? 50000;
    const ticks = [];
    for (let at = 0; at <= answer.time; at += step) {
      ticks.push(element("svg:line", { class: "tick", x1: x(at), x2: x(at), y1: 16, y2: HEAD + 2 * ROW }),
        element("svg:text", { x: x(at), y: 12, "text-anchor": at ? "middle" : "start" }, at ? `${at / 1000} s` : "0"));
    }
    const share = answer.waited / answer.time;
    const words = `${answer.steps.length} inner steps take ${rounded(answer.time / 1000)} s; the worker waits ${rounded(answer.waited / 1000)} s of it, ${rounded(100 * share)}%.`;
    const svg = element("svg:svg", { width: room, height: HEAD + 2 * ROW, role: "img", "aria-label": words }, ...ticks, ...compute, ...waits, ...flights);
    const strong = (value) => element("b", {}, value);
    const each = answer.rounds ? answer.waited / answer.rounds : 0;
    content.replaceChildren(
      element("p", { class: "sum" }, element("span", {}, "waits ", strong(`${rounded(100 * share)}%`), " of the time"),
        element("span", {}, strong(rounded(each)), ` ms in each of ${answer.rounds} rounds of ${answer.round} inner steps`),
        element("span", {}, "an average takes ", strong(rounded(answer.average)), " ms")),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Time line of a worker" }, svg),
      element("ul", { class: "legend" }, ...[["computing", "inner steps"], ["waiting", "waiting"], ["f0", "a fragment in flight, by its number"]]
        .map(([kind, text]) => element("li", {}, element("i", { class: kind }), text))));
    return words;
  }
  const { content, begin } = Ladder.box(root, {
    ask, title: "Rounds of a DiLoCo worker", draw,
    sliders: { sync_every: "--sync-every", fragments: "--fragments", delay: "--sync-delay", step: "An inner step, ms", average: "An average of the whole model, ms" },
  });
  begin();
});
