// The live figure of exact sums. All numbers come from sums.cpp.
Ladder.start("sums", (root, ask) => {
  const { element } = Ladder;
  const cell = (text, attributes = {}) => element("td", attributes, text);
  const power = (exponent) => [element("span", {}, "2"), element("sup", {}, String(exponent).replace("-", "−"))];

  // Binary digits in a frame that ends at the quantum; what is behind it will be rounded away.
  function digits(text, frame) {
    return [element("span", { class: "kept" }, text.slice(0, frame)), element("span", { class: "dropped" }, text.slice(frame))];
  }

  function draw(answer) {
    const frame = answer.digits;
    const numbers = answer.numbers.flatMap((one, i) => [
      element("tr", {}, element("th", { scope: "row" }, `x${i}`), cell(one.number),
        element("td", { class: "digits" }, one.is_negative ? "−" : " ", ...digits(one.digits, frame))),
      element("tr", { class: "rounded" }, cell(""), cell(`${one.quanta} quanta`),
        element("td", { class: "digits" }, one.is_negative ? "−" : " ", ...digits(one.rounded_digits, frame))),
    ]);
    const first = answer.orders[0];
    const orders = answer.orders.map((order) => element("tr", {}, element("th", { scope: "row" }, order.name),
      element("td", { class: "digits" }, order.how),
      element("td", { class: order.bits === first.bits ? "same" : "other" }, order.sum, element("small", {}, ` ${order.bits}`)),
      element("td", { class: order.rounded_bits === first.rounded_bits ? "same" : "other" }, order.rounded_sum, element("small", {}, ` ${order.rounded_bits}`))));
    const head = (...titles) => element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title))));
    content.replaceChildren(
      element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "The numbers in binary" },
        element("table", {}, element("caption", {}, "Each number in binary, and rounded to multiples of the quantum, ", ...power(answer.quantum), "; the frame begins below the range, ", ...power(answer.range)),
          element("tbody", {}, ...numbers))),
      element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "The sums" },
        element("table", {}, head("added up", "order", "fp32 sum, and its bits", "rounded first"), element("tbody", {}, ...orders))));
    const count = (sums) => `${sums} different sum${sums === 1 ? "" : "s"}`;
    return `One after the other, in all orders: ${count(answer.sums)} of the numbers as they are, ${count(answer.sums_rounded)} if they are rounded first.`;
  }
  const { content, begin } = Ladder.box(root, {
    ask, title: "Sums in several orders", sliders: {}, draw,
    texts: { numbers: { words: "Numbers, 2 to 7 of them", value: "0.3 0.7 0.9" } },
  });
  begin();
});
