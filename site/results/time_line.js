// Measured time lines that can be looked into: what each rank of a traced run computed and waited for, what
// was in flight, and what it held. The data are scripts that traces.py has made of the traces; those of one
// group share their axis, so that two runs can be compared.
//
// Times are nanoseconds: in a trace since the run began, in a Range since the step began that is shown.
"use strict";
window.Ladder = window.Ladder || {};
(function () {
  const SPAN = 0, WAIT = 1, OPERATION = 2;
  const DEPTHS = [20, 16, 8];  // heights of the rows of computing: the deepest are marks
  const WIRE = 16, GAP = 2, MEMORY = 36, HEAD = 24, AXIS = 24, LETTER = 6.7;
  const KEYS = "Drag or press ← and → to move; pinch, press + and −, or click the time line and turn the wheel to zoom; 0 fits. Enter, ↑, ↓ and Shift with ← or → go from slice to slice.";

  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const count = (number) => number.toLocaleString("en-US");
  function ms(ns, digits = 3) { return `${(ns / 1e6).toLocaleString("en-US", { maximumFractionDigits: digits })} ms`; }

  class Range {
    constructor(length) {
      this.home = length;
      this.limits = [-length, 2 * length];
      this.watchers = [];
      this.begin = 0;
      this.end = length;
    }
    set(begin, end) {
      const [least, most] = this.limits;
      const length = Math.min(Math.max(end - begin, 1000), most - least);
      this.begin = Math.min(Math.max(begin + (end - begin - length) / 2, least), most - length);
      this.end = this.begin + length;
      this.watchers.forEach((watch) => watch());
    }
    get length() { return this.end - this.begin; }
    pan(share) { this.set(this.begin + share * this.length, this.end + share * this.length); }
    zoom(factor, at = (this.begin + this.end) / 2) { this.set(at - (at - this.begin) / factor, at + (this.end - at) / factor); }
    fit() { this.set(0, this.home); }
    show(begin, end) {  // brings a slice into view, and leaves the zoom as it is
      if (begin >= this.begin && end <= this.end) return;
      const middle = Math.min((begin + end) / 2, begin + this.length / 2);
      this.set(middle - this.length / 2, middle + this.length / 2);
    }
  }

  function slicesOf(data) {
    return data.slices.map(([rank, what, row, kind, begin, length, name, args, pair]) => {
      const [full, long, short] = data.names[name];
      return { rank, what, row, kind: data.kinds[kind][0], begin, end: begin + length, name: full, long, short, args: data.args[args], pair };
    });
  }

  class Viewer {
    constructor(figure, data, range) {
      Object.assign(this, { figure, data, range, slices: slicesOf(data), chosen: -1, pointed: -1, pointers: new Map() });
      this.pairs = new Map();
      for (const one of this.slices) if (one.pair >= 0) this.pairs.set(one.pair, [...(this.pairs.get(one.pair) || []), one]);
      this.messages = [...this.pairs.values()].map((all) => ["send", "recv"].map((kind) => all.find((one) => one.what === OPERATION && one.args.kind === kind))).filter(([send, recv]) => send && recv);
      this.layOut();
      figure.innerHTML = `<figcaption><strong>${escaped(data.step)}</strong> <label>step <select>${data.steps.map(([number]) => `<option${number === data.shown ? " selected" : ""}>${number}</option>`).join("")}</select></label></figcaption>
        <svg tabindex="0" role="application" aria-label="${escaped(`Time line of ${data.step} on ${data.ranks} ranks. ${KEYS} Tables with its numbers are below.`)}"></svg>
        <div class="ladder-tip" aria-hidden="true" hidden></div><output>Click a slice, or press Enter, to see what it is.</output>`;
      [this.svg, this.tip, this.output, this.select] = ["svg", ".ladder-tip", "output", "select"].map((name) => figure.querySelector(name));
      this.takeStep(data.shown);
      this.select.addEventListener("change", () => { this.takeStep(Number(this.select.value)); range.set(range.begin, range.end); });
      this.listen();
      range.watchers.push(() => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.svg);
    }

    takeStep(number) {
      const [, begin, end] = this.data.steps.find(([each]) => each === number) || this.data.steps[0];
      Object.assign(this, { number, origin: begin, stepLength: end - begin });
      this.tops.forEach((of, rank) => {  // the most that is held in the step
        const sums = this.data.memory[rank].filter(([time]) => begin <= time && time < end).map(([, ...bytes]) => bytes.reduce((a, b) => a + b, 0));
        of.held = Math.max(0, ...sums);
      });
      const ends = this.slices.reduce(([a, b], one) => [Math.min(a, one.begin), Math.max(b, one.end)], [begin, end]);
      this.range.limits = [Math.min(this.range.limits[0], ends[0] - begin), Math.max(this.range.limits[1], ends[1] - begin)];
    }

    layOut() {  // the same at any zoom: the y of each row, and who is in it
      const deepest = Math.min(DEPTHS.length, 1 + Math.max(...this.slices.filter((one) => one.what === SPAN).map((one) => one.row)));
      const computing = DEPTHS.slice(0, deepest), height = computing.reduce((a, b) => a + b + 1, 0);
      let y = 0;
      this.rows = [];
      this.tops = [];
      this.waits = [...Array(this.data.ranks).keys()].map((rank) => this.slices.filter((one) => one.rank === rank && one.what === WAIT).sort((a, b) => a.begin - b.begin));
      for (let rank = 0; rank < this.data.ranks; ++rank) {
        const own = this.slices.filter((one) => one.rank === rank), wires = 1 + Math.max(-1, ...own.filter((one) => one.what === OPERATION).map((one) => one.row));
        const add = (top, tall, slices) => {
          for (const one of slices) Object.assign(one, { y: top, tall });
          if (slices.length) this.rows.push(slices.sort((a, b) => a.begin - b.begin));
        };
        const top = y + HEAD;
        let below = top;
        computing.forEach((tall, depth) => {
          add(below, tall, own.filter((one) => one.what === SPAN && Math.min(one.row, deepest - 1) === depth));
          below += tall + 1;
        });
        add(top, height - 1, [...this.waits[rank]]);
        const wire = top + height + 6;
        for (let row = 0; row < wires; ++row) add(wire + row * (WIRE + GAP), WIRE, own.filter((one) => one.what === OPERATION && one.row === row));
        const memory = wire + wires * (WIRE + GAP) + 6;
        this.tops.push({ head: y, top, wire, memory, held: 0 });
        y = memory + (this.data.memory[rank].length ? MEMORY + 8 : 0);
      }
      this.height = y + AXIS;
    }

    x(ns) { return this.left + ((ns - this.origin - this.range.begin) / this.range.length) * (this.right - this.left); }
    time(x) { return this.range.begin + ((x - this.left) / (this.right - this.left)) * this.range.length; }

    draw() {
      const width = this.svg.clientWidth || 700, isNarrow = width < 560;
      [this.left, this.right] = [isNarrow ? 4 : 88, width - 4];
      const parts = [], [from, to] = [this.origin + this.range.begin, this.origin + this.range.end];
      const text = (x, y, words, kind) => parts.push(`<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" class="${kind}">${escaped(words)}</text>`);
      this.svg.setAttribute("height", this.height);
      this.boxes = [];
      this.drawAxis(parts, text);
      const lit = this.lit();
      this.tops.forEach((of, rank) => {
        const most = `≤ ${(of.held / 1e6).toFixed(1)} MB`;
        text(4, of.head + 16, `rank ${rank}`, "strong");
        if (isNarrow) text(60, of.head + 16, `computing; in flight${of.held ? `; memory ${most}` : ""}`, "small");
        else [[of.top + 14, "computing"], [of.wire + 12, "in flight"], ...(of.held ? [[of.memory + 14, "memory"], [of.memory + 29, most]] : [])].forEach(([y, words]) => text(4, y, words, "small"));
        this.drawMemory(parts, rank, from, to);
      });
      for (const what of [SPAN, WAIT, OPERATION]) {
        this.slices.forEach((one, i) => {
          if (one.what === what && one.end >= from && one.begin <= to) this.drawSlice(parts, text, one, i, lit.has(one));
        });
      }
      for (const [send, recv] of this.messages) {
        if (Math.max(send.begin, recv.end) < from || Math.min(send.begin, recv.end) > to) continue;
        parts.push(`<path d="M${this.x(send.begin).toFixed(1)} ${send.y + WIRE / 2}L${this.x(recv.end).toFixed(1)} ${recv.y + WIRE / 2}" class="message${lit.has(send) ? " lit" : ""}" marker-end="url(#ladder-tip-${this.data.step})"/>`);
      }
      for (const [a, b] of [[this.left, this.x(this.origin)], [this.x(this.origin + this.stepLength), this.right]]) {  // other steps are paler
        if (b > a) parts.push(`<rect x="${a.toFixed(1)}" y="0" width="${(b - a).toFixed(1)}" height="${this.height - AXIS}" class="outside"/>`);
      }
      this.svg.innerHTML = `<defs><marker id="ladder-tip-${this.data.step}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 1L9 5L0 9z" class="tip"/></marker>
        <clipPath id="ladder-clip-${this.data.step}"><rect x="${this.left}" y="0" width="${this.right - this.left}" height="${this.height}"/></clipPath></defs>
        ${parts.filter((part) => /class="(small|strong)/.test(part)).join("")}<g clip-path="url(#ladder-clip-${this.data.step})">${parts.filter((part) => !/class="(small|strong)/.test(part)).join("")}</g>`;
    }

    lit() {  // what belongs to the slice that is chosen or pointed at
      const all = new Set();
      for (const i of [this.chosen, this.pointed]) {
        if (i >= 0) all.add(this.slices[i]);
        if (i >= 0 && this.slices[i].pair >= 0) this.pairs.get(this.slices[i].pair).forEach((one) => all.add(one));
      }
      return all;
    }

    drawAxis(parts, text) {
      const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(this.range.length / 8))).find((each) => this.range.length / each <= Math.max(3, (this.right - this.left) / 75));
      const y = this.height - AXIS + 4, digits = Math.max(0, 6 - Math.floor(Math.log10(step)));
      for (let at = Math.ceil(this.range.begin / step) * step; at <= this.range.end; at += step) {
        const x = this.x(this.origin + at);
        parts.push(`<path d="M${x.toFixed(1)} 0V${y}" class="grid"/>`);
        text(Math.min(Math.max(x, this.left + 14), this.right - 22), y + 14, `${(at / 1e6).toFixed(digits)}${Math.abs(at) < step / 2 ? " ms" : ""}`, "tick");
      }
      for (const edge of [0, this.stepLength]) parts.push(`<path d="M${this.x(this.origin + edge).toFixed(1)} 0V${y}" class="edge"/>`);
    }

    drawSlice(parts, text, one, i, isLit) {
      const begin = this.x(one.begin), x = Math.max(begin, this.left - 4), end = Math.min(this.x(one.end), this.right + 4), wide = Math.max(end - x, 0.8);
      parts.push(`<rect x="${x.toFixed(1)}" y="${one.y}" width="${wide.toFixed(1)}" height="${one.tall}" class="slice ${one.kind}${isLit ? " lit" : ""}${i === this.chosen ? " chosen" : ""}" data-slice="${i}"/>`);
      this.boxes.push([x, one.y, wide, one.tall, i]);
      if (one.tall < 12 || wide < 10) return;
      const [a, b] = this.widestGap(one, Math.max(x, this.left), Math.min(end, this.right));
      const words = [one.long, one.short].find((each) => each.length * LETTER + 6 <= b - a);
      if (words) text((a + b) / 2, one.y + Math.min(one.tall, 20) / 2 + 4, words, `on-${one.kind}`);
    }

    widestGap(one, from, to) {  // of a slice, the widest part that waits leave free
      const waits = one.what === SPAN ? this.waits[one.rank].filter((wait) => wait.begin < one.end && wait.end > one.begin) : [];
      const edges = [from, ...waits.flatMap((wait) => [this.x(wait.begin), this.x(wait.end)]), to].map((x) => Math.min(Math.max(x, from), to));
      let best = [from, from];
      for (let i = 0; i < edges.length; i += 2) if (edges[i + 1] - edges[i] > best[1] - best[0]) best = [edges[i], edges[i + 1]];
      return best;
    }

    drawMemory(parts, rank, from, to) {
      const { memory, held } = this.tops[rank], most = Math.max(...this.tops.map((of) => of.held)), rows = this.data.memory[rank];
      const first = Math.max(0, rows.findIndex(([time]) => time > from) - 1), last = rows.findIndex(([time]) => time >= to);
      const seen = held ? rows.slice(rows.length && rows[rows.length - 1][0] <= from ? -1 : first, last < 0 ? undefined : last) : [];
      let below = seen.map(() => memory + MEMORY);
      this.data.categories.forEach(([name, color], category) => {
        const above = seen.map((row, i) => Math.max(below[i] - (row[1 + category] / most) * MEMORY, memory));
        if (above.some((y, i) => y !== below[i])) {
          const xs = [...seen.map(([time]) => this.x(time)), this.right].map((x) => Math.min(Math.max(x, this.left), this.right).toFixed(1));
          const forth = above.map((y, i) => `H${xs[i]}V${y.toFixed(1)}H${xs[i + 1]}`), back = below.map((y, i) => `V${y.toFixed(1)}H${xs[i]}`).reverse();
          parts.push(`<path d="M${xs[0]} ${above[0].toFixed(1)}${forth.join("")}${back.join("")}z" fill="${color}"><title>${escaped(name)}</title></path>`);
        }
        below = above;
      });
    }

    // ---- what a slice is ------------------------------------------------------------------------------------------

    when(one) { return `${ms(one.end - one.begin)}, from ${ms(one.begin - this.origin)} to ${ms(one.end - this.origin)}`; }

    describe(i) {
      const one = this.slices[i], args = one.args, lines = [];
      const group = args.group === "world" ? `all ${this.data.ranks} ranks` : args.group;
      const partners = one.pair < 0 ? [] : this.pairs.get(one.pair).filter((other) => other !== one);
      const title = one.what === WAIT ? `rank ${one.rank} waits for ${args.kind}${args.label ? `: ${args.label}` : ""}` : `rank ${one.rank}: ${one.name}${one.long.startsWith(one.name) || one.name.endsWith(one.long) || one.what === SPAN ? "" : ` (${one.long})`}`;
      lines.push(`${{ [SPAN]: "", [WAIT]: "Waits for ", [OPERATION]: "In flight for " }[one.what]}${this.when(one)}.`);
      if (one.what === SPAN) {
        const said = Object.entries(args).map(([name, value]) => `${name} ${value}`);
        const waits = this.waits[one.rank].filter((other) => other.begin >= one.begin && other.end <= one.end);
        if (said.length) lines.push(`${said.join(", ")}.`);
        if (waits.length) lines.push(`In it, the rank waits for ${ms(waits.reduce((sum, other) => sum + other.end - other.begin, 0))}, in ${waits.length} ${waits.length > 1 ? "waits" : "wait"}.`);
        return { title, lines };
      }
      lines.push("from" in args ? `A message of ${count(args.bytes)} bytes from rank ${args.from} to rank ${args.to}, tag ${args.tag}.` : `${args.kind} of ${count(args.bytes)} bytes among ${group}; this rank sends ${count(args.sent_bytes)} bytes.`);
      for (const other of partners.filter((each) => each.what === OPERATION)) lines.push(`On rank ${other.rank}, ${other.args.kind} is in flight for ${this.when(other)}.`);
      const waits = partners.filter((each) => each.what === WAIT);
      for (const other of waits) lines.push(`Rank ${other.rank} waits for it for ${this.when(other)}.`);
      if (one.what === OPERATION && !waits.length) lines.push("No rank waits for it.");
      return { title, lines };
    }

    choose(i) {
      this.chosen = i;
      if (i >= 0) {
        const { title, lines } = this.describe(i);
        this.output.innerHTML = `<strong>${escaped(title)}</strong> ${lines.map((line) => `<span>${escaped(line)}</span>`).join(" ")}`;
      } else this.output.textContent = "";
      this.draw();
    }

    // ---- mouse, touch, keys ----------------------------------------------------------------------------------------

    at(x, y) {  // the slice at a place, or the nearest one within a few pixels; of several, the smallest
      let found = [9, Infinity, -1];
      for (const [left, top, wide, tall, i] of this.boxes) {
        const away = Math.max(left - x, x - left - wide, top - y, y - top - tall, 0), size = this.slices[i].what === WAIT ? 0 : wide * tall;
        if (away < found[0] - 1e-9 || (away <= found[0] && size < found[1])) found = [away, size, i];
      }
      return found[2];
    }

    place(event) {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    point(i, x, y) {
      if (i !== this.pointed) {
        this.pointed = i;
        this.draw();
      }
      this.tip.hidden = i < 0;
      if (i < 0) return;
      const one = this.slices[i], { title } = this.describe(i);
      this.tip.textContent = `${title}, ${ms(one.end - one.begin)}${"bytes" in one.args ? `, ${count(one.args.bytes)} bytes` : ""}`;
      const below = this.svg.getBoundingClientRect().top - this.figure.getBoundingClientRect().top + y + 18;
      Object.assign(this.tip.style, { left: `${Math.max(0, Math.min(x + 12, this.svg.clientWidth - this.tip.offsetWidth))}px`, top: `${below}px` });
    }

    listen() {
      const { svg, range, pointers } = this;
      svg.addEventListener("pointerdown", (event) => {
        svg.setPointerCapture(event.pointerId);
        pointers.set(event.pointerId, this.place(event));
        if (pointers.size === 1) this.moved = 0;
      });
      svg.addEventListener("pointermove", (event) => {
        const now = this.place(event), before = pointers.get(event.pointerId);
        if (!before) return event.pointerType === "mouse" ? this.point(this.at(...now), ...now) : undefined;
        const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        this.moved += Math.abs(now[0] - before[0]);
        if (others.length) {  // two fingers: what is below them stays there
          const [was, is] = [before[0], now[0]].map((x) => Math.abs(x - others[0][0]));
          if (was > 8 && is > 8) range.zoom(is / was, this.time(others[0][0]));
          this.moved += 9;  // no click
        } else if (this.moved > 4) range.pan((before[0] - now[0]) / (this.right - this.left));
        this.tip.hidden = true;
        pointers.set(event.pointerId, now);
      });
      for (const end of ["pointerup", "pointercancel"]) {
        svg.addEventListener(end, (event) => {
          if (end === "pointerup" && pointers.has(event.pointerId) && this.moved <= 4) this.choose(this.at(...this.place(event)));
          pointers.delete(event.pointerId);
        });
      }
      svg.addEventListener("pointerleave", () => this.point(-1));
      svg.addEventListener("dblclick", (event) => range.zoom(2, this.time(this.place(event)[0])));
      svg.addEventListener("wheel", (event) => {
        const isAcross = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (!isAcross && !event.ctrlKey && document.activeElement !== svg) return;  // the page scrolls
        event.preventDefault();
        if (isAcross) range.pan((event.deltaX || event.deltaY) / 800);
        else range.zoom(Math.exp(-event.deltaY / 400), this.time(this.place(event)[0]));
      }, { passive: false });
      svg.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !this.press(event.key, event.shiftKey)) return;
        event.preventDefault();
      });
    }

    press(key, isShifted) {
      const { range } = this, chosen = this.slices[this.chosen], sideways = { ArrowLeft: -1, ArrowRight: 1 }[key], downwards = { ArrowUp: -1, ArrowDown: 1 }[key];
      if (sideways && isShifted) this.go(chosen ? this.beside(chosen, sideways) : this.nearest(0));
      else if (sideways) range.pan(0.15 * sideways);
      else if (downwards) this.go(chosen ? this.nearest(this.rows.findIndex((row) => row.includes(chosen)) + downwards, downwards) : this.nearest(0));
      else if ("+=".includes(key)) range.zoom(1.5);
      else if ("-_−".includes(key)) range.zoom(1 / 1.5);
      else if (["0", "Home", "f"].includes(key)) range.fit();
      else if (key === "Enter" || key === " ") this.go(chosen || this.nearest(0));
      else if (key === "Escape") this.choose(-1);
      else return false;
      return true;
    }

    beside(one, direction) {
      const row = this.rows.find((each) => each.includes(one));
      return row[row.indexOf(one) + direction];
    }

    nearest(number, direction = 1) {  // of the first row from this one on that has a slice in view, the one next to the middle
      const from = this.origin + this.range.begin, to = this.origin + this.range.end;
      const chosen = this.slices[this.chosen], middle = chosen ? (Math.max(chosen.begin, from) + Math.min(chosen.end, to)) / 2 : (from + to) / 2;
      const away = (one) => Math.max(one.begin - middle, middle - one.end, 0);
      for (; number >= 0 && number < this.rows.length; number += direction) {
        const seen = this.rows[number].filter((one) => one.end > from && one.begin < to);
        if (seen.length) return seen.reduce((best, one) => (away(one) < away(best) ? one : best));
      }
    }

    go(one) {
      if (!one) return;
      this.chosen = this.slices.indexOf(one);
      this.range.show(one.begin - this.origin, one.end - this.origin);
      this.choose(this.chosen);
    }
  }

  // ---- a group with one axis, and the address of what it shows -------------------------------------------------------

  class Group {
    constructor(root) {
      const figures = [...root.querySelectorAll("[data-trace]")], all = figures.map((figure) => Ladder.traces[figure.dataset.trace]);
      this.range = new Range(Math.max(...all.map((data) => data.length)));
      this.viewers = figures.map((figure, i) => new Viewer(figure, all[i], this.range));
      const bar = document.createElement("div");
      bar.className = "ladder-bar";
      const act = { "←": ["Earlier", () => this.range.pan(-0.3)], "→": ["Later", () => this.range.pan(0.3)], "−": ["Zoom out", () => this.range.zoom(1 / 1.5)], "+": ["Zoom in", () => this.range.zoom(1.5)], Fit: ["The whole step", () => this.range.fit()], "Full screen": ["Full screen", () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen())] };
      for (const [name, [label, does]] of Object.entries(act)) {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: name, title: label, onclick: does });
        button.setAttribute("aria-label", label);
        bar.append(button);
      }
      root.prepend(bar);
      const used = new Set(this.viewers.flatMap((viewer) => viewer.slices.map((one) => one.kind)));
      const held = all[0].categories.filter((_, i) => all.some((data) => data.memory.some((rows) => rows.some((row) => row[1 + i]))));
      root.insertAdjacentHTML("beforeend", `<ul class="ladder-legend">${all[0].kinds.filter(([kind]) => used.has(kind)).map(([kind, words]) => `<li><svg width="14" height="12" aria-hidden="true"><rect class="slice ${kind}" x="1" y="1" width="12" height="10"/></svg>${escaped(words)}</li>`).join("")}${held.map(([name, color]) => `<li><svg width="14" height="12" aria-hidden="true"><rect fill="${color}" x="1" y="1" width="12" height="10"/></svg>memory: ${escaped(name)}</li>`).join("")}</ul><p class="ladder-keys">${KEYS}</p>`);
      this.range.watchers.push(() => this.keepAddress());
      window.addEventListener("hashchange", () => this.readAddress());
      this.readAddress();
      root.classList.add("is-live");
    }

    keepAddress() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const [from, to] = [this.range.begin, this.range.end].map((ns) => (ns / 1e6).toFixed(3));
        const address = `#ms=${from}-${to}&steps=${this.viewers.map((viewer) => viewer.number).join(",")}`;
        try { history.replaceState(null, "", address); } catch { /* some browsers refuse for files */ }
      }, 250);
    }

    readAddress() {
      const found = /ms=(-?[\d.]+)-(-?[\d.]+)&steps=([\d,]+)/.exec(location.hash);
      if (!found) return this.viewers.forEach((viewer) => viewer.draw());
      found[3].split(",").slice(0, this.viewers.length).forEach((number, i) => {
        this.viewers[i].takeStep(Number(number));
        this.viewers[i].select.value = number;
      });
      if (Number(found[1]) < Number(found[2])) this.range.set(1e6 * found[1], 1e6 * found[2]);
    }
  }

  Ladder.groups = [...document.querySelectorAll(".ladder-time-lines")].map((root) => new Group(root));
})();
