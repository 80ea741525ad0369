// The live figure of buckets: a step of data parallelism on a link, with one all-reduce per tensor and with buckets.
// wasm: theory
//
// What is sent, and when, is what steps 3 and 4 say (--dry-run); the planner's clock carries it out.
Ladder.start("buckets", (root, ask) => {
  const { element } = Ladder;
  const ROW = 26, HEAD = 22, GAP = 18, COMPUTING = 0;
  const SETTINGS = {
    bucket: { value: 0.5, least: 0.05, most: 5, step: 0.05 }, latency: { value: 50, least: 0, most: 500, step: 5 }, bandwidth: { value: 0.5, least: 0.1, most: 10, step: 0.1 },
    ranks: { value: 2, least: 2, most: 64, step: 1 }, layers: { value: 4, least: 1, most: 12, step: 1 }, speed: { value: 0.06, least: 0.02, most: 2, step: 0.02 },
  };
  const rounded = (value) => String(Number(value.toPrecision(3)));

  function answer(query) {
    const given = Object.fromEntries(new URLSearchParams(query)), settings = structuredClone(SETTINGS);
    for (const [name, setting] of Object.entries(settings)) {
      setting.value = Number(given[name] ?? setting.value);
      if (!(setting.value >= setting.least && setting.value <= setting.most)) throw new Error(`${name} is '${given[name]}': it must be a number from ${setting.least} to ${setting.most}`);
    }
    const value = (name) => settings[name].value;
    const words = `--dry-run ${value("ranks")} --json --layers ${value("layers")} --link ${value("latency")}:${value("bandwidth")} --speed ${value("speed")}:10`;
    const run = (title, step, own) => ({ title, ...ask(`${step} ${words} ${own}`) });
    return { settings, runs: [run("step 3: one all-reduce per tensor", "step3_naive_dp", ""), run(`step 4: buckets of ${value("bucket")} MiB`, "step4_bucketed_ddp", `--bucket-mb ${value("bucket")}`)] };
  }

  function timeline({ title, layers, clock }, y, x, unit) {
    const bars = clock.spans.map(([, lane, begin, end, what, layer, microbatch, bytes]) => {
      const words = lane === COMPUTING ? `${what}${layer >= 0 ? ` of ${layers[layer].name}` : ""}, ${rounded(1000 * (end - begin))} ms`
        : `${what} of ${bytes.toLocaleString("en")} bytes, ${rounded(1000 * (end - begin))} ms`;
      return element("svg:rect", { x: x(begin), y: y + 16 + (lane === COMPUTING ? 0 : ROW), height: ROW - 6, width: Math.max((end - begin) * unit, 0.7), class: lane === COMPUTING ? what : "in-flight" },
        element("svg:title", {}, words));
    });
    return [element("svg:text", { x: 4, y: y + 10, class: "title" }, title), ...bars,
      element("svg:line", { class: "end", x1: x(clock.step_s), x2: x(clock.step_s), y1: y + 14, y2: y + 14 + 2 * ROW })];
  }

  function draw({ runs }) {
    const width = Math.max(560, content.clientWidth - 4), longest = Math.max(...runs.map(({ clock }) => clock.step_s)), unit = (width - 12) / longest, x = (seconds) => 4 + seconds * unit;
    const height = HEAD + runs.length * (2 * ROW + 14 + GAP);
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((ms) => ms * unit > 70000) ?? 20000;
    const ticks = [];
    for (let ms = 0; ms / 1000 <= longest; ms += step) ticks.push(element("svg:line", { class: "tick", x1: x(ms / 1000), x2: x(ms / 1000), y1: 16, y2: height }),
      element("svg:text", { x: x(ms / 1000), y: 12, "text-anchor": ms ? "middle" : "start" }, ms ? String(ms) : "0 ms"));
    const in_flight = ({ spans }) => spans.filter(([, lane]) => lane !== COMPUTING).reduce((sum, [, , begin, end]) => sum + end - begin, 0);
    const strong = (value) => element("b", {}, value);
    const numbers = runs.map(({ title, clock }) => element("span", {}, `${title.split(":")[0]}: `, strong(`${rounded(1000 * clock.step_s)} ms`), `, waiting ${rounded(1000 * clock.waiting_s)} ms of ${rounded(1000 * in_flight(clock))} in flight`));
    const words = runs.map(({ title, clock }) => `${title}: ${rounded(1000 * clock.step_s)} ms, of which ${rounded(1000 * clock.waiting_s)} ms waiting.`).join(" ");
    content.replaceChildren(element("p", { class: "sum" }, ...numbers),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Time lines of a rank" },
        element("svg:svg", { width, height, role: "img", "aria-label": words }, ...ticks, ...runs.flatMap((run, i) => timeline(run, HEAD + i * (2 * ROW + 14 + GAP), x, unit)))),
      element("ul", { class: "legend" }, ...["forward", "backward", "update", "in-flight"].map((kind) => element("li", {}, element("i", { class: kind }), kind.replace("update", "optimizer step").replace("-", " ")))));
    const [before, after] = runs.map(({ clock }) => clock.step_s);
    return `With buckets, a step takes ${rounded((100 * after) / before)}% of the time.`;
  }
  const { content, begin } = Ladder.box(root, {
    ask: answer, title: "Buckets against a link", draw,
    sliders: { bucket: "--bucket-mb, MiB", latency: "Latency, µs", bandwidth: "Bandwidth, Gbit/s", ranks: "Ranks", layers: "Blocks of the model", speed: "10¹² operations per second" },
  });
  begin();
}, "theory");
