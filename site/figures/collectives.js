// The live figure of collectives. Messages, sums and costs come from collectives.cpp.
Ladder.start("collectives", (root, ask) => {
  const { element, set } = Ladder;
  const SIZE = 250, RADIUS = 88, MIDDLE = SIZE / 2, WHOLE = -1;
  const NAMES = { all_reduce: "all_reduce", reduce_scatter: "reduce_scatter", all_gather: "all_gather", broadcast: "broadcast", all_to_all: "all-to-all" };
  const WAYS = { direct: "direct", ring: "around a ring" };
  let at = 0, shown = "", answer;

  function place(rank, count, radius = RADIUS) {
    const angle = (2 * Math.PI * rank) / count - Math.PI / 2;
    return [MIDDLE + radius * Math.cos(angle), MIDDLE + radius * Math.sin(angle)];
  }

  // A bent line from rank to rank, so that the two ways are apart.
  function arrow([from, to, slice], count) {
    const [x1, y1] = place(from, count), [x2, y2] = place(to, count);
    const dx = x2 - x1, dy = y2 - y1, length = Math.hypot(dx, dy), off = 17 / length, bend = 0.12;
    const a = [x1 + dx * off, y1 + dy * off], b = [x2 - dx * off, y2 - dy * off];
    const c = [(a[0] + b[0]) / 2 - dy * bend, (a[1] + b[1]) / 2 + dx * bend];
    const what = slice === WHOLE ? "its tensor" : `slice ${slice}`;
    return element("svg:path", { class: "message", d: `M${a} Q${c} ${b}`, "marker-end": `url(#${root.id}-head)` },
      element("svg:title", {}, `rank ${from} sends ${what} to rank ${to}`));
  }

  const tip = element("svg:marker", { id: `${root.id}-head`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    element("svg:path", { d: "M0 0 8 4 0 8Z", class: "tip" }));
  const messages = element("svg:g"), ranks = element("svg:g");
  const ring = element("svg:svg", { width: SIZE, height: SIZE, role: "img" }, element("svg:defs", {}, tip), messages, ranks);
  const cells = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "What each rank has" });
  const back = element("button", { type: "button", onclick: () => go(at - 1) }, "Previous round");
  const next = element("button", { type: "button", onclick: () => go(at + 1) }, "Next round");
  const round = element("span", { role: "status" });
  const costs = element("div", { class: "wide" });

  function go(to) {
    at = Math.max(0, Math.min(to, answer.states.length - 1));
    show_round();
  }

  function words_of({ messages: sent }) {
    if (!at) return "Before the first round";
    return `Round ${at} of ${answer.states.length - 1}: ${sent.length} message${sent.length === 1 ? "" : "s"} at the same time`;
  }

  function show_round() {
    const state = answer.states[at], before = answer.states[Math.max(0, at - 1)], count = state.cells.length;
    messages.replaceChildren(...state.messages.map((message) => arrow(message, count)));
    ranks.replaceChildren(...state.cells.flatMap((_, rank) => {
      const [x, y] = place(rank, count);
      return [element("svg:circle", { cx: x, cy: y, r: 14, class: "rank" }), element("svg:text", { x, y: y + 4, "text-anchor": "middle", class: "on" }, String(rank))];
    }));
    set(ring, { "aria-label": `${words_of(state)}. ${state.messages.map(([from, to, slice]) => `${from} to ${to}: ${slice === WHOLE ? "all" : `slice ${slice}`}`).join("; ")}` });
    const head = element("tr", {}, element("th", {}, ""), ...state.cells[0].map((_, slice) => element("th", { scope: "col" }, `slice ${slice}`)));
    const rows = state.cells.map((row, rank) => element("tr", {}, element("th", { scope: "row" }, `rank ${rank}`), ...row.map(({ text, parts }, slice) =>
      element("td", { class: `${parts === count ? "whole" : ""} ${before.cells[rank][slice].text !== text ? "new" : ""}` }, text))));
    cells.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
    round.textContent = words_of(state);
    back.disabled = at === 0;
    next.disabled = at === answer.states.length - 1;
  }

  const rounded = (value) => Number(value.toPrecision(4)).toLocaleString("en");
  function show_costs() {
    const row = (name, { rounds, messages: sent, bytes, ms }) => element("tr", { class: name === answer.way ? "chosen-way" : "" },
      element("th", { scope: "row" }, WAYS[name]), ...[rounds, sent, bytes].map((each) => element("td", {}, each.toLocaleString("en"))), element("td", {}, `${rounded(ms)} ms`));
    costs.replaceChildren(element("table", {}, element("thead", {}, element("tr", {},
      ...["", "rounds", "messages of a rank", "bytes of a rank", "rounds × latency + bytes / bandwidth"].map((title) => element("th", { scope: "col" }, title)))),
      element("tbody", {}, ...Object.entries(answer.costs).map(([name, cost]) => row(name, cost)))));
  }

  function draw(found) {
    answer = found;
    const what = `${found.collective} ${found.way} ${found.states[0].cells.length}`;
    if (what !== shown) at = 1;  // another collective begins anew
    shown = what;
    show_round();
    show_costs();
    return "";
  }
  const { content, begin } = Ladder.box(root, {
    ask, title: "Collectives as messages", draw,
    choices: { collective: { words: "Collective", values: NAMES }, way: { words: "Way", values: WAYS } },
    sliders: { ranks: "Ranks", kilobytes: "Tensor, kB", latency: "Latency, µs", bandwidth: "Bandwidth, Gbit/s" },
  });
  content.append(element("div", { class: "bar rounds" }, back, next, round), element("div", { class: "beside" }, ring, cells), costs);
  begin();
});
