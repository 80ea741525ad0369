// Reads the values of one step from a chart's table, below the pointer or with the arrow keys.
for (const chart of document.querySelectorAll("svg[data-first]")) {
  const figure = chart.closest("figure"), output = figure.querySelector("output"), cursor = chart.querySelector(".cursor");
  const names = [...figure.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent);
  const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const steps = rows.map((row) => Number(row[0].replaceAll(",", "")));
  const { first, last, left, right } = Object.fromEntries(Object.entries(chart.dataset).map(([key, value]) => [key, Number(value)]));
  let at = rows.length - 1;
  output.textContent = "Point, or press ← and →, to read a step.";

  function show(row) {
    at = Math.min(Math.max(row, 0), rows.length - 1);
    const runs = new Map();  // those with the same value are named together
    rows[at].slice(1).forEach((value, i) => value === "–" || runs.set(value, [...(runs.get(value) ?? []), names[i]]));
    output.textContent = `step ${rows[at][0]}: ` + [...runs].map(([value, of]) => `${of.join(", ")} ${value}`).join("; ");
    const x = last > first ? left + ((right - left) * (steps[at] - first)) / (last - first) : (left + right) / 2;
    cursor.setAttribute("transform", `translate(${x} 0)`);
    cursor.style.visibility = "visible";
  }
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect(), x = ((event.clientX - box.left) * chart.viewBox.baseVal.width) / box.width;
    const step = first + ((last - first) * (x - left)) / (right - left);
    show(steps.reduce((best, _, i) => (Math.abs(steps[i] - step) < Math.abs(steps[best] - step) ? i : best), 0));
  });
  chart.addEventListener("keydown", (event) => {
    const row = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: rows.length - 1 }[event.key];
    if (row === undefined) return;
    event.preventDefault();
    show(row);
  });
}
