// The page: draws every figure of an element (again after its content was replaced), buttons, light and dark.

const kinds = { lines: drawLines, rows: drawRows, heat: drawHeat, flame: drawFlame };

const states = new Map();  // by place in the page: a figure that is drawn anew looks as the reader left it

function setUp(figure) {
  const canvas = figure.querySelector(".canvas");
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const place = `${figure.closest("section").id}/${figure.querySelector("figcaption").textContent}`;
  const state = states.get(place) || { choice: 0, hidden: new Set(), table: false, zoom: 0 };
  states.set(place, state);
  state.choice = Math.min(state.choice, spec.x.length - 1);
  let width = 0;
  const draw = () => {
    width = canvas.clientWidth;
    if (state.table) showTable(canvas, tables[spec.kind](spec, state));
    else kinds[spec.kind](canvas, spec, state);
    const legend = figure.querySelector(".legend");
    if (legend) legend.hidden = state.table;
  };
  const buttons = add(figure.querySelector("figcaption"), "span", { class: "buttons" });
  const button = (name, pressed, press) => {
    const made = add(buttons, "button", { type: "button", "aria-pressed": String(pressed) }, name);
    made.onclick = () => { press(made); draw(); };
    return made;
  };
  if (spec.x.length > 1) {
    const axes = spec.x.map((axis, at) => button(at ? "time" : axis.label, at === state.choice, () => {
      state.choice = at;
      axes.forEach((other, index) => other.setAttribute("aria-pressed", String(index === at)));
    }));
  }
  button("table", state.table, (made) => {
    state.table = !state.table;
    made.setAttribute("aria-pressed", String(state.table));
  });
  draw();
  new ResizeObserver(() => { if (canvas.isConnected && canvas.clientWidth !== width) draw(); }).observe(canvas);
}

function drawAll(root) {
  root.querySelectorAll("figure.chart").forEach(setUp);
  root.querySelectorAll(".copy").forEach((button) => {
    button.onclick = async () => {
      const text = button.nextElementSibling;
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);  // pages from a file may not touch the clipboard: Ctrl-C does
        button.textContent = "Selected";
      }
    };
  });
}

document.getElementById("theme").onclick = () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.trim() === "dark"
    || (document.documentElement.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
};
drawAll(document);
