// What live figures share: they run this repository's C++ as WebAssembly. Classic scripts without a framework, so that a page
// works from a file; NAME.wasm.js puts the bytes of NAME.cpp into Ladder.wasm (compile.py), NAME.js draws.
window.Ladder = {
  wasm: {},

  // Resolves to ask(request), which returns what NAME.cpp answers, and throws an Error with its complaint. Rejects if this
  // browser cannot run it.
  async load(name) {
    const bytes = Uint8Array.from(atob(Ladder.wasm[name]), (letter) => letter.charCodeAt(0));
    const module = await WebAssembly.compile(bytes);
    const imports = {};  // the C++ library asks for an operating system; there is none
    for (const { module: from, name: what } of WebAssembly.Module.imports(module)) {
      (imports[from] ??= {})[what] = () => 52;  // ENOSYS
    }
    const begin = (instance) => (instance.exports._initialize(), instance.exports);
    let cpp = begin(await WebAssembly.instantiate(module, imports));
    const text_at = (address) => {
      const memory = new Uint8Array(cpp.memory.buffer, address);
      return new TextDecoder().decode(memory.subarray(0, memory.indexOf(0)));
    };
    return (request) => {
      const text = new TextEncoder().encode(request), address = cpp.room_for(text.length);
      new Uint8Array(cpp.memory.buffer, address, text.length).set(text);
      try {
        return JSON.parse(text_at(cpp.answer()));
      } catch (trap) {  // an exception ended the instance
        const complaint = text_at(cpp.complaint());
        cpp = begin(new WebAssembly.Instance(module, imports));
        throw complaint ? new Error(complaint) : trap;
      }
    };
  },

  // Starts the figure in each <div data-figure=NAME>, once its C++ has answered: below the picture
  // that is in the div, of which the lesson speaks. `wasm`: whose C++ it runs, if that is another figure's.
  async start(name, figure, wasm = name) {
    try {
      const ask = await Ladder.load(wasm);
      ask("");
      for (const root of document.querySelectorAll(`[data-figure="${name}"]`)) {
        const place = root.appendChild(Ladder.element("div", { id: root.id }));
        root.removeAttribute("id");
        figure(place, ask);
      }
    } catch (error) {
      console.warn(`The figure ${name} stays still: ${error.message}`);
    }
  },

  // An element with attributes, listeners (onclick: …) and children.
  element(tag, attributes = {}, ...children) {
    const [, space, name] = tag.match(/^(svg:)?(.*)/);
    const made = space ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    Ladder.set(made, attributes).append(...children);
    return made;
  },
  set(made, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (typeof value === "boolean") made.toggleAttribute(name, value);
      else made.setAttribute(name, value);
    }
    return made;
  },

  // A permalink is the page's address and, behind "#", the figure's id, "?" and its settings.
  link_to: (root, query) => `${location.href.split("#")[0]}#${root.id}?${query}`,
  query_for: (root) => (location.hash.startsWith(`#${root.id}?`) ? location.hash.slice(root.id.length + 2) : null),
};
