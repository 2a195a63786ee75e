// Curves. state: which x axis is chosen, which series are hidden.

const swatch = (series) => `swatch c${series.colour % 8}${series.dashed ? " dashed" : ""}`;

function drawLines(canvas, spec, state) {
  const plot = frame(canvas, canvas.clientWidth < 480 ? 230 : 280, 58);
  const axis = spec.x[state.choice];
  const shown = spec.series.filter((_, index) => !state.hidden.has(index));
  const xOf = (series) => series.xs[state.choice];
  const marked = spec.marks.map((mark) => mark.at[state.choice]);  // something may happen before the first epoch has ended
  const x = scale(axis, [...shown.flatMap(xOf), ...marked], [plot.left, plot.right], plot.width < 480 ? 4 : 7);
  const y = scale(spec.y, shown.flatMap((series) => series.y), [plot.bottom, plot.top + 4], 5, true);
  drawY(plot, spec.y, y);
  drawX(plot, axis, x);
  drawMarks(plot, spec.marks, x, state.choice);
  for (const series of shown) {
    const points = series.y.map((value, at) => [x.place(xOf(series)[at]), y.place(value)]);
    const path = points.map(([left, top], at) => `${at ? "L" : "M"}${left.toFixed(1)},${top.toFixed(1)}`).join("");
    const colour = `c${series.colour % 8}`;
    add(plot.svg, "path", { d: path, class: `line ${colour}${series.dashed ? " dashed" : ""}` });
    if (points.length > 40) continue;
    for (const [cx, cy] of points) add(plot.svg, "circle", { cx, cy, r: 2.5, class: `dot ${colour}` });
  }
  const flip = (index) => {
    if (!state.hidden.delete(index)) state.hidden.add(index);
    drawLines(canvas, spec, state);
  };
  const entries = [...spec.series.map((series) => [swatch(series), series.name]), ...markEntries(spec.marks)];
  drawLegend(canvas, entries, flip, spec.series.length, state.hidden);
  const cursor = add(plot.svg, "g", { class: "cursor" });
  const nearest = (series, spot) => {
    const away = xOf(series).map((value) => Math.abs(x.place(value) - spot));
    const least = away.reduce((a, b) => Math.min(a, b), 40);  // pixels: what is farther is not pointed at
    return away.indexOf(least);
  };
  follow(canvas, plot, (spotX, spotY) => {
    const found = shown.map((series) => [series, nearest(series, spotX)]).filter(([, at]) => at >= 0);
    const marks = nearMarks(spec.marks, x, state.choice, spotX);
    cursor.textContent = "";
    if (!found.length && !marks.length) return false;
    const centre = found.length ? xOf(found[0][0])[found[0][1]] : x.back(spotX);
    add(cursor, "line", { x1: x.place(centre), x2: x.place(centre), y1: plot.top, y2: plot.bottom });
    const rows = found.map(([series, at]) => {
      const here = xOf(series)[at];
      const dot = { cx: x.place(here), cy: y.place(series.y[at]), r: 4, class: `dot c${series.colour % 8}` };
      add(cursor, "circle", dot);
      const where = here === centre ? "" : ` (at ${readable(here, axis.unit)})`;
      return [swatch(series), series.name + where, readable(series.y[at], spec.y.unit)];
    });
    const title = axis.unit ? readable(centre, axis.unit) : `${axis.label} ${number(centre)}`;
    showTip(canvas, x.place(centre), spotY, title, [...rows, ...marks]);
    return true;
  }, () => { cursor.textContent = ""; });
}
