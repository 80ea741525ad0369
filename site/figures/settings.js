// What simple figures share: a box with sliders for the settings of their C++, a permalink, and a line that says what is wrong.
//
//   const { content, begin } = Ladder.box(root, { ask, title, draw, sliders: {delay: "Delay"},
//     choices: {way: {words: "Way", values: {ring: "around a ring"}}}, texts: {numbers: {words: "Numbers", value: "1 2"}} });
//
// draw(answer) is called with each new answer; what it returns is said to screen readers. Settings that the C++ refuses are
// said to be wrong, and what was shown stays.
Ladder.box = (root, { ask, title, sliders = {}, choices = {}, texts = {}, draw }) => {
  const { element, set } = Ladder;
  const inputs = {}, outputs = {}, id = (name) => `${root.id}-${name}`;
  const says = element("p", { class: "says", role: "status" });
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, name in texts ? input.value.trim().replace(/[\s_;]+/g, "_") : input.value]));
  const query = () => new URLSearchParams(values()).toString();

  function say(words, kind = "") {
    says.className = `says ${kind}`;
    says.textContent = words;
  }
  function show(text) {
    try {
      const answer = ask(text);
      for (const [name, { value, least, most, step }] of Object.entries(answer.settings ?? {})) {
        if (!inputs[name]) continue;
        set(inputs[name], { min: least, max: most, step });
        inputs[name].value = value;
        outputs[name].textContent = value;
      }
      say(draw(answer) ?? "");
      return true;
    } catch (error) {
      say(error.message, "bad");
      return false;
    }
  }
  function changed() {
    for (const name in outputs) outputs[name].textContent = inputs[name].value;
    if (show(query())) history.replaceState(null, "", Ladder.link_to(root, query()));
  }
  const labels = Object.entries(sliders).map(([name, words]) => {
    inputs[name] = element("input", { type: "range", id: id(name), oninput: changed });
    outputs[name] = element("output", { for: id(name) });
    return element("label", { for: id(name) }, words, outputs[name], inputs[name]);
  });
  const selects = Object.entries(choices).map(([name, { words, values: known, value: first }]) => {
    inputs[name] = element("select", { id: id(name), onchange: changed },
      ...Object.entries(known).map(([value, text]) => element("option", { value, selected: value === first }, text)));
    return element("label", { for: id(name) }, `${words} `, inputs[name]);
  });
  const fields = Object.entries(texts).map(([name, { words, value }]) => {
    inputs[name] = element("input", { type: "text", id: id(name), value, oninput: changed });
    return element("label", { class: "field", for: id(name) }, words, inputs[name]);
  });
  const copy = element("button", { type: "button", onclick: copy_link }, "Copy link");
  async function copy_link() {
    const link = Ladder.link_to(root, query());
    history.replaceState(null, "", link);
    try {
      await navigator.clipboard.writeText(link);
      say("The link is copied: it opens the figure with these settings.");
    } catch {
      say(`Your browser does not let a page copy. The link is also in the address bar: ${link}`);
    }
  }
  const content = element("div", {});
  const box = element("div", { class: "figure-box", role: "group", "aria-label": title },
    ...fields, element("div", { class: "bar" }, ...selects), element("div", { class: "sliders" }, ...labels), content, says, element("div", { class: "bar" }, copy));
  const open = () => {
    const asked = Ladder.query_for(root);
    if (asked === null) return;
    root.scrollIntoView();
    for (const [name, value] of new URLSearchParams(asked)) {
      if (name in texts) inputs[name].value = value.replaceAll("_", " ");
      if (name in choices && value in choices[name].values) inputs[name].value = value;
    }
    show(asked);
  };
  return {
    content,
    begin() {
      root.replaceChildren(box);
      show("");
      open();
      window.addEventListener("hashchange", open);
    },
  };
};
