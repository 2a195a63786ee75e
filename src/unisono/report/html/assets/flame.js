// A flame graph: frames below what they are inside of. state.zoom: the frame that is as wide as the chart.

const FRAME_HIGH = 22;  // pixels

function drawFlame(canvas, spec, state) {
  const rows = 1 + Math.max(...spec.frames.map((part) => part.depth));
  const plot = frame(canvas, 60 + rows * FRAME_HIGH, 14);
  const [axis] = spec.x;
  const chosen = spec.frames[state.zoom] || spec.frames[0];
  const [from, to] = [chosen.start, chosen.start + chosen.length];
  const x = scale(axis, [from, to], [plot.left, plot.right], plot.width < 480 ? 3 : 8);
  const shown = [];
  spec.frames.forEach((part, index) => {
    const [begun, ended] = [Math.max(from, part.start), Math.min(to, part.start + part.length)];
    const [left, width] = [x.place(begun), x.place(ended) - x.place(begun)];
    if (width < 0.5) return;
    const top = plot.top + part.depth * FRAME_HIGH;
    shown.push({ part, index, left, width });
    add(plot.svg, "rect", { x: left, y: top + 1, width, height: FRAME_HIGH - 2, rx: 2, class: `frame p${part.colour}` });
    const most = Math.floor((width - 8) / LETTER);
    if (most < 3) return;
    add(plot.svg, "text", { x: left + 4, y: top + 15, class: "inside" }, short(part.name, most));
  });
  drawX(plot, axis, x);
  drawLegend(canvas, spec.legend.map(([colour, name]) => [`swatch block p${colour}`, name]));
  const at = (spotX, spotY) => shown.find(({ part, left, width }) =>
    part.depth === Math.floor((spotY - plot.top) / FRAME_HIGH) && spotX >= left && spotX < left + width);
  follow(canvas, plot, (spotX, spotY) => {
    const found = at(spotX, spotY);
    if (!found) return false;
    const share = (whole) => `${number((100 * found.part.length) / whole.length)} %`;
    const rest = chosen === spec.frames[0] ? [] : [["", `of ${chosen.name}`, share(chosen)]];
    const value = [`swatch block p${found.part.colour}`, axis.label, readable(found.part.length, axis.unit)];
    showTip(canvas, spotX, spotY, found.part.name, [value, ["", `of ${spec.frames[0].name}`, share(spec.frames[0])], ...rest]);
    return true;
  });
  plot.svg.onclick = (event) => {
    const box = plot.svg.getBoundingClientRect();
    const found = at(event.clientX - box.left, event.clientY - box.top);
    if (!found) return;
    state.zoom = found.index === state.zoom ? 0 : found.index;
    drawFlame(canvas, spec, state);
  };
}
