// What all charts share: the frame with its axes, marks of events, the legend, and the box beside the pointer.

function frame(canvas, height, left) {
  canvas.textContent = "";
  const width = Math.max(240, canvas.clientWidth);
  const name = canvas.parentElement.querySelector("figcaption").firstChild.textContent;
  const svg = add(canvas, "svg", { width, height, role: "img", "aria-label": `chart: ${name}` });
  return { svg, width, left, right: width - 10, top: 22, bottom: height - 38 };
}

function drawX(plot, axis, x) {
  for (const tick of x.ticks) {
    const at = x.place(tick);
    const [anchor, shift] = at > plot.right - 12 ? ["end", 9] : ["middle", 0];
    add(plot.svg, "line", { x1: at, x2: at, y1: plot.bottom, y2: plot.bottom + 4, class: "tick" });
    add(plot.svg, "text", { x: at + shift, y: plot.bottom + 16, "text-anchor": anchor }, tickText(axis, tick));
  }
  add(plot.svg, "line", { x1: plot.left, x2: plot.right, y1: plot.bottom, y2: plot.bottom, class: "axis" });
  add(plot.svg, "text", { x: plot.right, y: plot.bottom + 32, "text-anchor": "end", class: "title" }, titled(axis));
}

function drawY(plot, axis, y) {
  for (const tick of y.ticks) {
    const at = y.place(tick);
    add(plot.svg, "line", { x1: plot.left, x2: plot.right, y1: at, y2: at, class: "grid" });
    add(plot.svg, "text", { x: plot.left - 6, y: at + 4, "text-anchor": "end" }, tickText(axis, tick));
  }
  add(plot.svg, "text", { x: 0, y: 11, class: "title" }, titled(axis));
}

const SIGNS = {  // around the top of a mark's line; legends have the same shapes (page.css)
  lost: "M-4,-6h8l-4,7z", back: "M-4,1h8l-4,-7z", stalled: "M-3.5,-6h7v7h-7z", unsaved: "M0,-7l4,4l-4,4l-4,-4z",
};

function drawMarks(plot, marks, x, choice) {
  for (const mark of marks) {
    const at = x.place(mark.at[choice]);
    add(plot.svg, "line", { x1: at, x2: at, y1: plot.top, y2: plot.bottom, class: `mark ${mark.sign}` });
    const place = { transform: `translate(${at},${plot.top})`, class: `flag ${mark.sign}` };
    add(plot.svg, "path", { d: SIGNS[mark.sign], ...place });
  }
}

function nearMarks(marks, x, choice, spot) {
  const near = marks.filter((mark) => Math.abs(x.place(mark.at[choice]) - spot) < 7);
  const rows = near.slice(0, 4).map((mark) => [`flag ${mark.sign}`, mark.label, ""]);
  return near.length > 4 ? [...rows, ["", `and ${near.length - 4} more events here`, ""]] : rows;
}

function markEntries(marks) {
  const signs = new Map(marks.map((mark) => [mark.kind, mark.sign]));
  const count = (kind) => marks.filter((mark) => mark.kind === kind).length;
  return [...signs].map(([kind, sign]) => [`flag ${sign}`, `${kind} (${count(kind)})`]);
}

// entries: [class of the swatch, name]; flip, if given, is called with the number of one of the first `count` of them.
function drawLegend(canvas, entries, flip = null, count = 0, hidden = new Set()) {
  const legend = canvas.parentElement.querySelector(".legend") || document.createElement("div");
  legend.className = "legend";
  legend.textContent = "";
  canvas.before(legend);
  entries.forEach(([swatch, name], index) => {
    const button = { type: "button", class: "entry", "aria-pressed": String(!hidden.has(index)) };
    const entry = index < count ? add(legend, "button", button) : add(legend, "span", { class: "entry" });
    if (index < count) entry.onclick = () => flip(index);
    add(entry, "i", { class: swatch });
    add(entry, "span", {}, name);
  });
}

// rows: [class of the swatch, name, value]. The box stays inside the figure.
function showTip(canvas, spotX, spotY, title, rows) {
  const tip = canvas.querySelector(".tip") || add(canvas, "div", { class: "tip", role: "status" });
  tip.textContent = "";
  tip.hidden = false;
  add(tip, "b", {}, title);
  for (const [swatch, name, value] of rows) {
    const row = add(tip, "div");
    add(row, "i", { class: swatch });
    add(row, "span", {}, name);
    add(row, "em", {}, value);
  }
  const beside = spotX < canvas.clientWidth / 2 ? spotX + 14 : spotX - tip.offsetWidth - 14;
  tip.style.left = `${Math.max(0, Math.min(canvas.clientWidth - tip.offsetWidth, beside))}px`;
  tip.style.top = `${Math.max(0, spotY - 20)}px`;
}

// look(x, y) is told the pointer's place in the drawing and answers whether something is there; leave() ends it.
function follow(canvas, plot, look, leave = () => {}) {
  const gone = () => {
    const tip = canvas.querySelector(".tip");
    if (tip) tip.hidden = true;
    leave();
  };
  plot.svg.onpointermove = plot.svg.onpointerdown = (event) => {
    const box = plot.svg.getBoundingClientRect();
    if (!look(event.clientX - box.left, event.clientY - box.top)) gone();
  };
  plot.svg.onpointerleave = gone;
}
