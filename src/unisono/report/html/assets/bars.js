// Rows of bars along a time axis, and heat maps: both are rows with names, told apart by what is in a cell.

const LETTER = 7.2;  // pixels
const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
const sum = (values) => values.reduce((a, b) => a + b, 0);

function rowFrame(canvas, names) {
  const high = names.length > 24 ? 12 : 22;
  const left = Math.min(canvas.clientWidth * 0.35, 14 + LETTER * Math.max(...names.map((name) => name.length)));
  const plot = frame(canvas, 60 + names.length * high, left);
  names.forEach((name, row) => {
    if (high < 14 && row % 2) return;
    const place = { x: left - 8, y: plot.top + (row + 0.5) * high + 4, "text-anchor": "end" };
    add(plot.svg, "text", place, short(name, Math.max(3, Math.floor((left - 10) / LETTER))));
  });
  return { ...plot, high, row: (spotY) => Math.floor((spotY - plot.top) / high) };
}

function drawRows(canvas, spec) {
  const plot = rowFrame(canvas, spec.rows);
  const [axis] = spec.x;
  const block = (part) => `swatch block p${spec.colours[part]}`;
  const x = scale(axis, [0, ...spec.cells.flat().map(sum)], [plot.left, plot.right], plot.width < 480 ? 3 : 8);
  spec.cells.forEach((cells, row) => cells.forEach(([start, ...lengths]) => lengths.forEach((length, part) => {
    const from = x.place(start + sum(lengths.slice(0, part)));
    const width = Math.max(0, x.place(start + sum(lengths.slice(0, part + 1))) - from);
    const y = plot.top + row * plot.high + 2;
    if (length > 0) add(plot.svg, "rect", { x: from, y, width, height: plot.high - 4, class: `p${spec.colours[part]}` });
  })));
  drawX(plot, axis, x);
  drawMarks(plot, spec.marks, x, 0);
  drawLegend(canvas, [...spec.parts.map((name, part) => [block(part), name]), ...markEntries(spec.marks)]);
  follow(canvas, plot, (spotX, spotY) => {
    const row = plot.row(spotY);
    const at = spec.rows[row] && spotX >= plot.left ? spec.cells[row].findLastIndex(([s]) => s <= x.back(spotX)) : -1;
    if (at < 0) return false;
    const [, ...lengths] = spec.cells[row][at];
    const rows = lengths.map((value, part) => {
      const share = lengths.length > 1 ? `, ${Math.round((100 * value) / (sum(lengths) || 1))} %` : "";
      return [block(part), spec.parts[part], readable(value, axis.unit) + share];
    });
    const title = [spec.rows[row], spec.labels[at]].filter(Boolean).join(", ");
    showTip(canvas, spotX, spotY, title, [...rows, ...nearMarks(spec.marks, x, 0, spotX)]);
    return true;
  });
}

function drawHeat(canvas, spec) {
  const plot = rowFrame(canvas, spec.rows);
  const width = (plot.right - plot.left) / spec.columns.length;
  spec.values.forEach((values, row) => values.forEach((value, column) => {
    const far = Math.max(-1, Math.min(1, (value - spec.expected[row][column]) / spec.reach));
    const kind = value === null ? "none" : far < 0 ? "below" : "above";
    const place = { x: plot.left + column * width, y: plot.top + row * plot.high, width: width + 0.3 };
    const cell = add(plot.svg, "rect", { ...place, height: plot.high, class: kind });
    cell.style.setProperty("--far", `${(100 * Math.abs(far)).toFixed(1)}%`);
  }));
  const widest = Math.max(...spec.columns.map((name) => Math.min(12, name.length)));
  const every = Math.ceil((LETTER * (2 + widest)) / width);
  spec.columns.forEach((name, column) => {
    const place = { x: plot.left + (column + 0.5) * width, y: plot.bottom + 15, "text-anchor": "middle" };
    if (column % every === 0) add(plot.svg, "text", place, short(name, 12));
  });
  const title = { x: plot.right, y: plot.bottom + 32, "text-anchor": "end", class: "title" };
  add(plot.svg, "text", title, spec.x[0].label);
  const reach = `${Number(spec.reach.toPrecision(2))} ${spec.unit === "%" ? "points" : spec.unit}`;
  drawLegend(canvas, [["ramp", `${reach} below its share of the samples · at it · ${reach} above`]]);
  follow(canvas, plot, (spotX, spotY) => {
    const [row, column] = [plot.row(spotY), Math.floor((spotX - plot.left) / width)];
    if (!spec.rows[row] || spec.columns[column] === undefined) return false;
    const name = `${spec.rows[row]}, ${spec.x[0].label} ${spec.columns[column]}`;
    const share = readable(spec.expected[row][column], spec.unit);
    showTip(canvas, spotX, spotY, name, [["", "", heatText(spec, row, column)], ["", "of the samples", share]]);
    return true;
  });
}

function heatText(spec, row, column) {
  const text = readable(spec.values[row][column], spec.unit);
  if (!spec.low || spec.low[row][column] === spec.high[row][column]) return text;
  return `${text} (${readable(spec.low[row][column], spec.unit)} to ${readable(spec.high[row][column], spec.unit)})`;
}
