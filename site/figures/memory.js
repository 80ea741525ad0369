// The live figure of memory: what a rank of every step holds of a model, and which steps fit.
// wasm: theory
//
// All bytes are those of --dry-run, which theory.cpp runs; each step says itself in which ways it is to be tried.
Ladder.start("memory", (root, ask) => {
  const { element } = Ladder;
  const PARTS = { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", communication: "communication", working: "activations and buffers, at most" };
  const SETTINGS = {
    context: { value: 1024, least: 128, most: 8192, step: 128 }, rows: { value: 1, least: 1, most: 32, step: 1 },
    microbatches: { value: 8, least: 1, most: 64, step: 1 }, memory: { value: 16, least: 1, most: 192, step: 1 },
  };
  const list = (names) => Object.fromEntries(names.map((name) => [name, String(name)]));
  const GIB = 2 ** 30;
  const is_planned = (step) => /^step\d/.test(step) || step === "tensor_parallel";
  const steps = ask("steps").filter(is_planned);

  function size(bytes) {
    for (const [unit, power] of [["TiB", 40], ["GiB", 30], ["MiB", 20]]) if (bytes >= 2 ** power) return `${Number((bytes / 2 ** power).toPrecision(4))} ${unit}`;
    return `${Math.round(bytes / 1024)} KiB`;
  }

  // Of the rank that holds most.
  function held({ ranks }) {
    const each = ranks.map(({ at_most, holds, working }) => ({ ...at_most, communication: holds.communication, working }));
    const sum = (parts) => Object.values(parts).reduce((a, b) => a + b, 0);
    return each.map((parts) => ({ parts, sum: sum(parts) })).sort((a, b) => b.sum - a.sum)[0];
  }

  function planned(step, words, ranks) {
    try {
      return ask(`${step} ${words} --dry-run ${ranks} --tries`).map(({ name, words: own }) => {
        const all = `${words} ${own}`.trim(), row = { step, name: [step.split("_")[0].replace("tensor", "tensor ranks"), name].filter(Boolean).join(", "), words: all };
        try {
          return { ...row, ...held(ask(`${step} ${all} --dry-run ${ranks} --json`)) };
        } catch (error) {
          return { ...row, refused: error.message };
        }
      });
    } catch (error) {
      return [{ step, name: step.split("_")[0], refused: error.message }];
    }
  }

  // The settings of the address, with what they come to.
  function answer(query) {
    const given = Object.fromEntries(new URLSearchParams(query)), settings = structuredClone(SETTINGS);
    for (const [name, setting] of Object.entries(settings)) {
      setting.value = Number(given[name] ?? setting.value);
      if (!(setting.value >= setting.least && setting.value <= setting.most)) throw new Error(`${name} is '${given[name]}': it must be a number from ${setting.least} to ${setting.most}`);
    }
    const { model = "smollm2-360m", ranks = "8", precision = "bf16", recompute = "none" } = given, number = (name) => settings[name].value;
    const words = `--model ${model} --context ${number("context")} --micro-batch-size ${number("rows")} --num-microbatches ${number("microbatches")} ` +
      `--precision ${precision} --recompute ${recompute}`;
    return { settings, ranks, memory: number("memory") * GIB, rows: steps.flatMap((step) => planned(step, words, ranks)) };
  }

  function bar({ parts, sum }, most, memory) {
    const share = (bytes) => `${(100 * bytes) / most}%`;
    return element("div", { class: "bytes" }, ...Object.entries(PARTS).map(([part, words]) =>
      element("i", { class: part, style: `width: ${share(parts[part])}`, title: `${words}: ${parts[part].toLocaleString("en")} bytes` })),
      ...(memory < most ? [element("b", { class: "limit", style: `left: ${share(memory)}` })] : []), element("span", { class: "unseen" }, `${sum} bytes`));
  }

  function draw({ ranks, memory, rows }) {
    const known = rows.filter((row) => !row.refused), most = Math.max(...known.map(({ sum }) => sum), 1), fits = known.filter(({ sum }) => sum <= memory);
    const lines = rows.map((row) => element("tr", { class: row.refused || row.sum > memory ? "too-large" : "" }, element("th", { scope: "row" }, row.name),
      row.refused ? element("td", { colspan: 2, class: "refused" }, row.refused) : element("td", {}, bar(row, most, memory)), ...(row.refused ? [] : [element("td", {}, size(row.sum))])));
    const first = fits[0];
    content.replaceChildren(
      element("ul", { class: "legend" }, ...Object.entries(PARTS).map(([part, words]) => element("li", {}, element("i", { class: part }), words)),
        element("li", {}, element("i", { class: "limit-sign" }), `${size(memory)} of memory`)),
      element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Memory of a rank, by step" },
        element("table", { class: "memory" }, element("thead", { class: "unseen" }, element("tr", {}, ...["step", "bytes", "in all"].map((title) => element("th", { scope: "col" }, title)))),
          element("tbody", {}, ...lines))),
      element("p", {}, first ? "The first that fits: " : "Nothing fits. More ranks, fewer rows, 16 bits or recomputing may help.",
        ...(first ? [element("code", {}, `./ladder train ${first.step} --ranks ${ranks} ${first.words}`)] : [])));
    return `${fits.length} of ${rows.length} ways fit into ${size(memory)}.`;
  }

  const { content, begin } = Ladder.box(root, {
    ask: answer, title: "Memory of every step", draw,
    choices: {
      model: { words: "Model", values: list(ask("models")), value: "smollm2-360m" }, ranks: { words: "Ranks", values: list([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]), value: "8" },
      precision: { words: "Precision", values: list(["fp32", "bf16"]), value: "bf16" }, recompute: { words: "Recompute", values: list(["none", "cheap", "blocks"]), value: "none" },
    },
    sliders: { context: "Context, tokens", rows: "Rows of a microbatch", microbatches: "Microbatches", memory: "Memory of a rank, GiB" },
  });
  begin();
}, "theory");
