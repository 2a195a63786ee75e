// The same numbers as a table: [head, rows] of texts for each kind of chart.

const tables = {
  lines(spec, state) {
    const axis = spec.x[state.choice];
    const byX = new Map();
    spec.series.forEach((series, at) => series.xs[state.choice].forEach((x, point) => {
      if (!byX.has(x)) byX.set(x, spec.series.map(() => null));
      byX.get(x)[at] = series.y[point];
    }));
    const texts = ([x, values]) => [readable(x, axis.unit), ...values.map((value) => readable(value, spec.y.unit))];
    return [[axis.label, ...spec.series.map((series) => series.name)], [...byX].sort(([a], [b]) => a - b).map(texts)];
  },
  rows(spec) {
    const times = (cell) => cell.map((value) => readable(value, spec.x[0].unit));
    const rows = (cells, row) => cells.map((cell, at) => [spec.rows[row], spec.labels[at], ...times(cell)]);
    return [["", "", "starts at", ...spec.parts], spec.cells.flatMap(rows)];
  },
  flame(spec) {
    const [whole] = spec.frames;
    const share = (frame) => `${number((100 * frame.length) / whole.length)} %`;
    const texts = (frame) => ["\u2003".repeat(frame.depth) + frame.name, readable(frame.length, "s"), share(frame)];
    return [["", spec.x[0].label, "share"], spec.frames.map(texts)];
  },
  heat(spec) {
    const texts = (name, column) => [name, ...spec.rows.map((_, row) => heatText(spec, row, column))];
    return [[spec.x[0].label, ...spec.rows], spec.columns.map(texts)];
  },
};

function showTable(canvas, [head, rows]) {
  canvas.textContent = "";
  const table = add(add(canvas, "div", { class: "scroll tall", tabindex: "0" }), "table");
  const first = add(add(table, "thead"), "tr");
  for (const name of head) add(first, "th", { scope: "col" }, name);
  const body = add(table, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((text, at) => add(line, "td", at ? { class: "number" } : {}, text));
  }
}
