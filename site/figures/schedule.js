// The live figure of pipeline schedules: what it shows, and all that it says of an order, comes from schedule.cpp.
(() => {
  "use strict";
  const { element, set } = Ladder;

  const SCHEDULES = { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "interleaved", "zero-bubble": "zero bubble" };
  const SLIDERS = {
    stages: "Stages", microbatches: "Microbatches", chunks: "Chunks per stage",
    forward: "Forward", dgrad: "dgrad", wgrad: "wgrad", message: "Message",
  };
  const KINDS = { forward: "F", backward: "B", dgrad: "I", wgrad: "W" };  // and the names of their colors
  const HINT = "Click a gap to see why it is there. Drag a computation to another place in its stage’s order; with a finger, hold it first. " +
    "With the keyboard, arrow keys go from one to the next, and with Shift they move it.";

  // `par` is what the step's own schedule reaches; `less` is by how much fewer microbatches must be live than there.
  const LEVELS = {
    "forget-sooner": {
      title: "1. Forget sooner", start: "schedule=gpipe&stages=2&microbatches=4", par: "schedule=1f1b&stages=2&microbatches=4",
      task: "GPipe runs all forwards first, so each stage remembers all microbatches at once. Begin each backward sooner, by moving it " +
        "left: need less memory, and no more time. The last stage can begin first.",
    },
    "three-stages": {
      title: "2. Three stages", start: "schedule=gpipe&stages=3&microbatches=5", par: "schedule=1f1b&stages=3&microbatches=5",
      task: "The same with three stages. How many forwards does each of them need before its first backward?",
    },
    "fill-the-gaps": {
      title: "3. Fill the gaps", start: "schedule=1f1b&cut=1&stages=3&microbatches=5",
      par: "schedule=zero-bubble&stages=3&microbatches=5",
      task: "Here each backward is cut in two, and each wgrad still follows its dgrad. But no other stage waits for a wgrad: put wgrads " +
        "off until their stage would be idle.",
    },
    "hide-the-messages": {
      title: "4. Hide the messages", start: "schedule=1f1b&stages=3&microbatches=6&message=0.5",
      par: "schedule=gpipe&stages=3&microbatches=6&message=0.5", less: 1,
      task: "A message takes half a slot, and with 1F1B the stages wait for one after the other. Move forwards left, so that a stage has " +
        "something to do meanwhile: match GPipe’s time with fewer live microbatches.",
    },
  };

  const ROW = 56, HEAD = 20, BOX = 34, STRIP = 12;  // pixels: a stage's row, the axis above, a box, the live microbatches below it
  // As printf rounds, in what C++ says.
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, roundingMode: "halfEven", useGrouping: false });
  const rounded = (value) => digits.format(value);
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;
  const parsed = (query) => Object.fromEntries(new URLSearchParams(query));

  function figure(root, ask) {
    let settings = {}, moves = [], level = "", answer, current = null, chosen = null, drag = null;
    const { settings: defaults } = ask("");

    // ---- what is asked, and permalinks --------------------------------------------------------------------------------

    const query = (with_moves = moves) =>
      Object.entries(settings).map(([name, value]) => `${name}=${value}`)
        .concat(with_moves.length ? `moves=${with_moves.map((move) => move.join(".")).join("_")}` : []).join("&");
    const permalink = () => Ladder.link_to(root, (level ? `level=${level}&` : "") + query());

    // Shows the settings of a permalink. A wrong one is refused, and what was shown stays.
    function open(text) {
      const { level: name = "", moves: moved = "", ...given } = parsed(text);
      if (name && !(name in LEVELS)) throw new Error(`there is no level '${name}'`);
      const wanted = name ? parsed(LEVELS[name].start) : given;
      const read = ask(new URLSearchParams(wanted).toString());
      const list = moved ? moved.split("_").map((move) => move.split(".").map(Number)) : [];
      const named = { schedule: read.schedule };
      for (const [setting, { value }] of Object.entries(read.settings)) named[setting] = value;
      const before = [settings, moves, level];
      [settings, moves, level] = [named, list, name];
      try {
        const found = ask(query());
        if (found.wrong) throw new Error(found.wrong);
        show(found);
      } catch (error) {
        [settings, moves, level] = before;
        throw error;
      }
    }

    function changed(what) {
      const planned_anew = Object.keys(what).some((name) => ["schedule", "stages", "microbatches", "chunks", "cut"].includes(name));
      if (planned_anew) moves = [];
      Object.assign(settings, what);
      if (what.schedule === "interleaved") settings.chunks = Math.max(2, settings.chunks);
      if (settings.schedule !== "interleaved" || settings.stages === 1) settings.chunks = 1;
      show(ask(query()));
      keep();
      say("");
      heard.textContent = `${in_words(answer)}; bubble: ${answer.percent_of_ideal}% of the ideal time`;
    }
    const keep = () => history.replaceState(null, "", permalink());

    // ---- the parts ----------------------------------------------------------------------------------------------------

    const id = (name) => `${root.id}-${name}`;
    const schedules = element("div", { class: "choices", role: "radiogroup", "aria-label": "Schedule" });
    for (const [name, title] of Object.entries(SCHEDULES)) {
      const input = element("input", { type: "radio", name: id("schedule"), value: name, onchange: () => changed({ schedule: name }) });
      schedules.append(element("label", {}, input, title));
    }
    const cut = element("input", { type: "checkbox", onchange: () => changed({ cut: cut.checked ? 1 : 0 }) });
    const sliders = {}, outputs = {};
    const slider_labels = Object.entries(SLIDERS).map(([name, title]) => {
      sliders[name] = element("input", { type: "range", id: id(name), oninput: () => changed({ [name]: Number(sliders[name].value) }) });
      outputs[name] = element("output", { for: id(name) });
      return element("label", { for: id(name) }, title, outputs[name], sliders[name]);
    });
    const controls = element("fieldset", {}, element("legend", { class: "unseen" }, "Settings of the schedule"),
      element("div", { class: "bar" }, schedules, element("label", {}, cut, " backwards cut in two")),
      element("div", { class: "sliders" }, ...slider_labels.slice(0, 3)),
      element("div", { class: "sliders costs" }, ...slider_labels.slice(3)));

    const level_choice = element("select", { id: id("level"), onchange: () => begin(level_choice.value) },
      element("option", { value: "" }, "Free play"),
      ...Object.entries(LEVELS).map(([name, { title }]) => element("option", { value: name }, title)));
    const task = element("p", { class: "task" }), goals = element("ul", { class: "goals", "aria-label": "Goals" });
    const sum = element("p", { class: "sum" });
    const names = element("div", { class: "names", "aria-hidden": "true" });
    const most = element("div", { class: "most", "aria-hidden": "true" });
    const rows = element("svg:g"), marks = element("svg:g", { "aria-hidden": "true" });
    const svg = element("svg:svg", { role: "grid", "aria-label": "Time line of the stages", "aria-describedby": id("hint") }, marks, rows);
    const above = element("svg:g", { "aria-hidden": "true" });
    svg.append(above);
    const scroll = element("div", { class: "scroll" }, svg);
    const legend = element("ul", { class: "legend" });
    const says = element("p", { class: "says", role: "status" }), hint = element("span", { id: id("hint"), class: "unseen" }, HINT);
    const heard = element("p", { class: "heard unseen", role: "status" });  // what a setting has changed, for those who do not see it
    const undo = element("button", { type: "button", onclick: () => taken_back(moves.slice(0, -1), "Undone.") }, "Undo");
    const again = element("button", { type: "button", onclick: () => taken_back([], "All moves undone.") }, "Start over");
    const copy = element("button", { type: "button", onclick: copy_link }, "Copy link");
    const table = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "The schedule as a table" });
    const text = element("pre", { class: "wide", tabindex: 0 }), command = element("p", {});
    const box = element("div", { class: "figure-box", role: "group", "aria-label": "A pipeline schedule to play with" },
      element("div", { class: "bar" }, element("label", { for: id("level") }, "Level"), level_choice), controls, task, goals, sum,
      element("div", { class: "chart" }, names, scroll, most), legend, says, heard, hint,
      element("div", { class: "bar" }, undo, again, copy),
      element("details", {}, element("summary", {}, "As a table"), table),
      element("details", {}, element("summary", {}, "As the trainer draws it"), text, command));

    function begin(name) {
      open(name ? `level=${name}` : new URLSearchParams({ ...settings }).toString());
      keep();
      say("");
    }
    function taken_back(list, words) {
      moves = list;
      show(ask(query()));
      keep();
      say(words);
    }
    async function copy_link() {
      keep();
      try {
        await navigator.clipboard.writeText(permalink());
        say("The link is copied: it opens this schedule, with your moves.");
      } catch {
        say(`Your browser does not let a page copy. The link is also in the address bar: ${permalink()}`);
      }
    }
    function say(words, kind = "") {
      says.className = `says ${kind}`;
      heard.textContent = "";
      if (says.textContent !== (words || HINT)) says.textContent = words || HINT;
    }

    // ---- levels -------------------------------------------------------------------------------------------------------

    const live_of = (found) => found.stages.map((stage) => stage.live);

    // What a level asks for, and whether it is met. Its par is computed as everything else is.
    function goals_of() {
      const { par: at_par, less = 0 } = LEVELS[level], par = ask(at_par), most_live = live_of(par).map((live) => live - less);
      return [
        [`at most ${rounded(par.slots)} slots (now ${rounded(answer.slots)})`, answer.slots <= par.slots + 1e-9],
        [`at most ${most_live.join(", ")} live microbatches on stages ${most_live.map((_, stage) => stage).join(", ")} ` +
          `(now ${live_of(answer).join(", ")})`, live_of(answer).every((live, stage) => live <= most_live[stage])],
      ];
    }

    function beats_par() {
      const { par: at_par, less } = LEVELS[level], par = ask(at_par);
      return !less && (answer.slots < par.slots - 1e-9 || live_of(answer).some((live, stage) => live < live_of(par)[stage]));
    }

    function show_level() {
      level_choice.value = level;
      controls.hidden = Boolean(level);
      task.hidden = goals.hidden = !level;
      if (!level) return;
      task.textContent = LEVELS[level].task;
      goals.replaceChildren(...goals_of().map(([words, is_met]) => element("li", { class: is_met ? "met" : "" },
        words, element("span", { class: "unseen" }, is_met ? ": reached" : ": not yet"))));
    }

    // ---- drawing ------------------------------------------------------------------------------------------------------

    const letter = (op) => (settings.chunks > 1 ? String.fromCharCode(97 + op.nth) : "");
    const key_of = (stage, part) => `${stage} ${part.name ?? `idle before ${part.before ?? "the end"}`}`;

    function words_for(stage, part) {
      if (part.why) return part.why;
      const needs = part.needs && answer.stages[part.needs[0]].ops[part.needs[1]];
      return `${part.name} on stage ${stage}: ${part.what} of microbatch ${part.microbatch}` +
        (settings.chunks > 1 ? ` through chunk ${part.nth * settings.stages + stage} of ${settings.stages * settings.chunks}` : "") +
        `, from ${rounded(part.begin)} to ${rounded(part.end)}. ` +
        (needs ? `It needs ${needs.name} of stage ${part.needs[0]}, which ends at ${rounded(needs.end)}. ` : "") +
        `Live on the stage: ${part.live}.`;
    }

    // Computations and gaps of a stage, in order of time.
    const parts_of = (stage) => [...stage.ops, ...stage.idle].sort((a, b) => a.begin - b.begin);
    const cells = new Map();
    let unit = 20;

    function draw_cell(stage, part) {
      const key = key_of(stage, part), width = (part.end - part.begin) * unit;
      let cell = cells.get(key);
      if (!cell) {
        cell = element("svg:g", { role: "gridcell", tabindex: -1, class: part.name ? "op" : "idle" },
          element("svg:rect", { height: BOX, y: 0 }), ...(part.name ? [element("svg:text", { y: BOX / 2 + 4 })] : []));
        cells.set(key, cell);
      }
      Object.assign(cell, { its_part: part, its_stage: stage, its_key: key });
      cell.style.transform = `translate(${part.begin * unit}px, 0)`;
      cell.firstChild.style.width = `${Math.max(0, width)}px`;
      set(cell, { "aria-label": words_for(stage, part) });
      if (part.name) {
        cell.style.setProperty("--color", `var(--${KINDS[part.what]})`);
        cell.style.setProperty("--nth", part.nth);
        const number = part.microbatch + letter(part);
        const fits = [KINDS[part.what] + number, number, String(part.microbatch)].find((label) => 7 * label.length + 2 <= width);
        cell.lastChild.textContent = fits ?? "";
        set(cell.lastChild, { x: width / 2 });
      }
      return cell;
    }

    // The live microbatches of a stage over time, as steps.
    function live_steps(stage, highest) {
      const y = (live) => BOX + 2 + STRIP * (1 - live / highest);
      let path = `M0 ${y(0)}`;
      for (const op of stage.ops) {
        path += `H${op.begin * unit}V${y(op.live)}H${op.end * unit}`;
        if (op.what === "backward" || op.what === "wgrad") path += `V${y(op.live - 1)}`;
      }
      return element("svg:path", { class: "live", "aria-hidden": "true", d: `${path}V${y(0)}Z` });
    }

    function draw_rows() {
      const highest = Math.max(...live_of(answer)), drawn = new Set(), had_focus = rows.contains(document.activeElement);
      while (rows.children.length > answer.stages.length) rows.lastChild.remove();
      answer.stages.forEach((stage, i) => {
        const row = rows.children[i] ?? rows.appendChild(element("svg:g", { role: "row", "aria-label": `stage ${i}` }));
        set(row, { transform: `translate(0 ${HEAD + i * ROW})` });
        row.querySelector(".live")?.remove();
        parts_of(stage).forEach((part, at) => {
          const cell = draw_cell(i, part);
          drawn.add(cell.its_key);
          if (row.children[at] !== cell) row.insertBefore(cell, row.children[at] ?? null);
        });
        row.append(live_steps(stage, highest));
      });
      for (const [key, cell] of cells) if (!drawn.has(key)) cell.remove(), cells.delete(key);
      if (!cells.has(current)) current = key_of(0, answer.stages[0].ops[0]);
      for (const [key, cell] of cells) set(cell, { tabindex: key === current ? 0 : -1 });
      if (had_focus) cells.get(current).focus({ preventScroll: true });
    }

    const line_at = (slots, name) =>
      element("svg:line", { class: name, x1: slots * unit, x2: slots * unit, y1: HEAD - 4, y2: HEAD + answer.stages.length * ROW - 6 });

    function draw_marks() {
      const step = [1, 2, 5, 10, 20, 50, 100].find((each) => each * unit >= 44), end = answer.slots;
      marks.replaceChildren();
      for (let at = 0; (end - at) * unit > 84; at += step) {
        const place = at ? { x: at * unit, "text-anchor": "middle" } : { x: 1 };
        marks.append(line_at(at, "tick"), element("svg:text", { y: HEAD - 7, ...place }, String(at)));
      }
      const goal = level ? ask(LEVELS[level].par).slots : ask(query([])).slots;
      above.replaceChildren(line_at(end, "end"),
        element("svg:text", { class: "end-text", x: end * unit - 4, y: HEAD - 7, "text-anchor": "end" }, `${rounded(end)} slots`));
      if (Math.abs(goal - end) > 1e-9) above.prepend(line_at(goal, "before"));
      show_chain();
    }

    // What led to a gap: each computation that the next one had to wait for, back to the start. Of a computation: what it needs.
    function show_chain() {
      above.querySelector(".chain")?.remove();
      for (const cell of rows.querySelectorAll(".chosen")) cell.classList.remove("chosen");
      const cell = cells.get(chosen);
      if (!cell) return;
      cell.classList.add("chosen");
      const op_at = ([stage, i]) => ({ stage, ...answer.stages[stage].ops[i] });
      let chain = [];
      if (cell.its_part.name) {
        chain = cell.its_part.needs ? [op_at(cell.its_part.needs), { stage: cell.its_stage, ...cell.its_part }] : [];
      } else {
        const last = answer.stages.flatMap(({ ops }, stage) => ops.map((op, i) => [op.end, stage, i])).sort((a, b) => b[0] - a[0])[0];
        let place = cell.its_part.before === undefined ? last.slice(1) : answer.stages[cell.its_stage].ops[cell.its_part.before].after;
        for (; place; place = chain[0].after) chain.unshift(op_at(place));
        if (cell.its_part.before !== undefined) chain.push({ stage: cell.its_stage, begin: cell.its_part.end, end: cell.its_part.end });
      }
      const y = (stage) => HEAD + stage * ROW + BOX - 5;
      let points = chain.flatMap(({ stage, begin, end }) => [`${begin * unit},${y(stage)}`, `${end * unit},${y(stage)}`]);
      if (cell.its_part.name) points = points.slice(1, 3);  // from the end of one to the begin of the other
      if (points.length) above.append(element("svg:polyline", { class: "chain", points: points.join(" ") }));
    }

    function draw() {
      const all = answer.stages.flatMap((stage) => stage.ops), shortest = Math.min(...all.map((op) => op.end - op.begin));
      const room = scroll.clientWidth - 2;
      unit = Math.max(room / answer.slots, 13 / shortest);
      set(svg, { width: Math.ceil(answer.slots * unit) + 2, height: HEAD + answer.stages.length * ROW });
      draw_rows();
      draw_marks();
    }

    function show_numbers() {
      const live = live_of(answer), has_chunks = settings.chunks > 1;
      const strong = (value) => element("b", {}, value);
      sum.replaceChildren(
        element("span", {}, strong(rounded(answer.slots)), " slots"),
        element("span", {}, "bubble ", strong(`${answer.percent_of_ideal}%`), " of the ideal time, ",
          strong(`${answer.percent_of_total}%`), " of the total"),
        element("span", {}, has_chunks ? "live chunks " : "live microbatches ", strong(live.join(", ")),
          has_chunks ? ` (as ${live.map((each) => rounded(each / settings.chunks)).join(", ")} microbatches)` : ""));
      const name_of = (stage) => element("div", {}, element("span", {}, "stage "), String(stage));
      names.replaceChildren(element("div", { class: "head" }), ...live.map((_, stage) => name_of(stage)));
      most.replaceChildren(element("div", { class: "head" }, "live"), ...live.map((each) => element("div", {}, String(each))));
      const kinds = new Set(answer.stages.flatMap((stage) => stage.ops.map((op) => op.what)));
      const entry = (color, words) => element("li", {}, element("i", { style: `background: ${color}` }), words);
      legend.replaceChildren(
        ...[...kinds].map((kind) => entry(`var(--${KINDS[kind]})`, `${KINDS[kind]} ${kind}`)),
        ...(has_chunks ? [entry("color-mix(in srgb, var(--F) 70%, white)", "lighter: the stage’s later chunks")] : []),
        entry("var(--idle)", "idle: the bubble"),
        entry("color-mix(in srgb, var(--mark) 45%, var(--paper))", has_chunks ? "live chunks" : "live microbatches"));
    }

    function show_text() {
      const slots = (part) => `${part.name ?? "idle"}\u00a0${rounded(part.begin)}\u2060–\u2060${rounded(part.end)}`;  // not on two lines
      table.replaceChildren(element("table", {},
        element("caption", { class: "unseen" }, "What each stage does, from slot to slot"),
        element("thead", {}, element("tr", {},
          ...["Stage", "Most live", "What it does, from slot to slot"].map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...answer.stages.map((stage, i) => element("tr", {}, element("th", { scope: "row" }, String(i)),
          element("td", {}, String(stage.live)), element("td", {}, parts_of(stage).map(slots).join(", ")))))));
      text.textContent = answer.text;
      const is_default = ["cut", "forward", "dgrad", "wgrad", "message"].every((name) => settings[name] === defaults[name].value);
      command.hidden = !is_default || moves.length > 0;
      command.replaceChildren(element("code", {}, `./ladder train step8 --show-schedule --pipeline-schedule ${settings.schedule} ` +
        `--pipeline-stages ${settings.stages} --num-microbatches ${settings.microbatches}` +
        (settings.chunks > 1 ? ` --chunks-per-stage ${settings.chunks}` : "")),
      settings.chunks > 1 ? ", where a slot is a chunk’s forward" : "");
    }

    function show_controls() {
      for (const input of schedules.querySelectorAll("input")) input.checked = input.value === settings.schedule;
      for (const [name, input] of Object.entries(sliders)) {
        const { least, most: highest, step } = answer.settings[name];
        set(input, { min: least, max: highest, step });
        input.value = settings[name];
        outputs[name].textContent = step < 1 ? counted(settings[name], "slot") : settings[name];
      }
      sliders.chunks.disabled = settings.schedule !== "interleaved" || settings.stages === 1;
      cut.checked = settings.cut === 1 || settings.schedule === "zero-bubble";
      cut.disabled = settings.schedule === "zero-bubble";
      undo.disabled = again.disabled = moves.length === 0;
    }

    function show(found) {
      answer = found;
      show_controls();
      show_numbers();
      show_level();
      draw();
      show_text();
    }

    // ---- moves --------------------------------------------------------------------------------------------------------

    // Steps of one computation in one go are one move.
    function moves_with([stage, from, to]) {
      const last = moves.at(-1);
      if (last?.[0] !== stage || last[2] !== from) return [...moves, [stage, from, to]];
      return last[1] === to ? moves.slice(0, -1) : [...moves.slice(0, -1), [stage, last[1], to]];
    }
    const in_words = (found) => `${rounded(found.slots)} slots, live: ${live_of(found).join(", ")}`;

    function move(stage, from, to) {
      const name = answer.stages[stage].ops[from].name, found = ask(query(moves_with([stage, from, to])));
      if (found.wrong) return say(`${name} cannot go there. ${sentence(found.wrong)}`, "bad");
      const slots = answer.slots;
      moves = moves_with([stage, from, to]);
      show(found);
      keep();
      if (level && goals_of().every(([, is_met]) => is_met)) {
        const verdict = beats_par() ? "Better than the step’s own schedule" : "Par";
        return say(`${verdict}, in ${counted(moves.length, "move")}: ${in_words(found)}.`, "good");
      }
      const difference = found.slots - slots;
      say(`${name} moved. ${in_words(found)}.` + (Math.abs(difference) < 1e-9 ? "" :
        ` That is ${rounded(Math.abs(difference))} ${difference > 0 ? "more" : "fewer"}.`));
    }

    // ---- the keyboard -------------------------------------------------------------------------------------------------

    scroll.addEventListener("focusin", ({ target }) => {
      const cell = target.closest("[role=gridcell]");
      if (!cell) return;
      set(cells.get(current) ?? cell, { tabindex: -1 });
      [current, chosen] = [cell.its_key, cell.its_key];
      set(cell, { tabindex: 0 });
      show_chain();
      if (drag?.has_moved) return;
      says.setAttribute("aria-live", "off");  // the cell's own label says it
      const is_traced = cell.its_part.why && above.querySelector(".chain");
      say(words_for(cell.its_stage, cell.its_part) + (is_traced ? " The line traces what had to come first." : ""));
      setTimeout(() => says.setAttribute("aria-live", "polite"));
      const left = cell.its_part.begin * unit, right = cell.its_part.end * unit;
      if (left < scroll.scrollLeft) scroll.scrollLeft = left - 20;
      if (right > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = Math.min(left, right - scroll.clientWidth + 20);
    });
    scroll.addEventListener("focusout", () => {
      chosen = null;
      show_chain();
    });
    svg.addEventListener("keydown", (event) => {
      const cell = event.target.closest("[role=gridcell]"), along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!cell || event.altKey || event.ctrlKey || event.metaKey) return;
      const { its_stage: stage, its_part: part } = cell, parts = parts_of(answer.stages[stage]), at = parts.indexOf(part);
      const across = { ArrowUp: -1, ArrowDown: 1 }[event.key], other = across && answer.stages[stage + across];
      let next = along ? parts[at + along] : { Home: parts[0], End: parts.at(-1) }[event.key];
      if (other) next = parts_of(other).find((each) => each.end > (part.begin + part.end) / 2) ?? parts_of(other).at(-1);
      if (!along && !across && !next) return;
      event.preventDefault();
      if (event.shiftKey) {
        const from = answer.stages[stage].ops.indexOf(part), to = from + along;
        if (!along) return;
        if (from < 0) say("A gap cannot be moved; it is where a stage waits.", "bad");
        else if (!answer.stages[stage].ops[to]) say(`${part.name} is the ${to < 0 ? "first" : "last"} computation of its stage.`, "bad");
        else move(stage, from, to);
      } else if (next) {
        cells.get(key_of(stage + (across ?? 0), next)).focus();
      }
    });

    // ---- pointers -----------------------------------------------------------------------------------------------------

    const slot_at = (event) => (event.clientX - svg.getBoundingClientRect().left) / unit;

    svg.addEventListener("pointerdown", (event) => {
      const cell = event.target.closest("[role=gridcell]");
      if (!cell || drag || event.button !== 0) return;
      cell.focus({ preventScroll: true });
      event.preventDefault();
      if (!cell.its_part.name) return;
      const { ops } = answer.stages[cell.its_stage], from = ops.indexOf(cell.its_part);
      drag = { cell, from, to: from, others: ops.filter((op) => op !== cell.its_part), begin: slot_at(event), has_moved: false };
      const hold = () => (drag.is_held = true, cell.classList.add("dragged"));
      if (event.pointerType === "touch") drag.timer = setTimeout(hold, 250);  // a finger that moves at once scrolls
      else hold();
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!drag?.is_held) return;
      const { cell, others, begin } = drag, by = slot_at(event) - begin, { its_part: part, its_stage: stage } = cell;
      if (!drag.has_moved && Math.abs(by * unit) < 4) return;
      if (!drag.has_moved) {
        drag.has_moved = true;
        cell.parentNode.insertBefore(cell, cell.parentNode.querySelector(".live"));
      }
      cell.style.transform = `translate(${(part.begin + by) * unit}px, -4px)`;
      const center = (part.begin + part.end) / 2 + by, to = others.filter((op) => (op.begin + op.end) / 2 < center).length;
      if (to === drag.to && above.querySelector(".place")) return;
      drag.to = to;
      const found = to === drag.from ? answer : ask(query(moves_with([stage, drag.from, to])));
      if (found.wrong) say(`Not there. ${sentence(found.wrong)}`, "bad");
      else say(`${part.name} here: ${in_words(found)}.`);
      const x = unit * (others[to]?.begin ?? others[to - 1].end), y = HEAD + stage * ROW;
      above.querySelector(".place")?.remove();
      above.append(element("svg:line", { class: `place ${found.wrong ? "cannot" : "can"}`, x1: x, x2: x, y1: y - 5, y2: y + BOX + 5 }));
    });
    scroll.addEventListener("touchmove", (event) => drag?.is_held && event.preventDefault(), { passive: false });
    scroll.addEventListener("contextmenu", (event) => drag && event.preventDefault());  // of a finger that holds
    const dropped = (event) => {
      if (!drag) return;
      const { cell, from, to, has_moved } = drag;
      clearTimeout(drag.timer);
      drag = null;
      above.querySelector(".place")?.remove();
      cell.classList.remove("dragged");
      if (!has_moved) return;
      draw();  // back to its place
      if (event.type === "pointerup" && to !== from) move(cell.its_stage, from, to);
      else say(words_for(cell.its_stage, cell.its_part));
    };
    svg.addEventListener("pointerup", dropped);
    svg.addEventListener("pointercancel", dropped);

    // ---- the start ----------------------------------------------------------------------------------------------------

    function open_link() {
      const asked = Ladder.query_for(root);
      if (asked === null) return;
      try {
        open(asked);
        say("");
      } catch (error) {
        say(`The link cannot be opened: ${error.message}.`, "bad");
      }
      box.scrollIntoView({ block: "start" });
    }
    const still = [...root.childNodes];
    root.replaceChildren(box);
    try {
      open(root.dataset.settings ?? "schedule=zero-bubble");
    } catch (error) {
      root.replaceChildren(...still);
      throw error;
    }
    say("");
    open_link();
    addEventListener("hashchange", open_link);
    new ResizeObserver(() => drag || draw()).observe(scroll);
  }

  Ladder.start("schedule", figure);
})();
