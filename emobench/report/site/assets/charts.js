// Charts: a template of Python's, filled in when it comes near the window, and each of them as a picture.

const waiting = new Map();
const near = new IntersectionObserver((seen) => seen.forEach((item) => item.isIntersecting && draw(item.target)), { rootMargin: "400px" });
window.addEventListener("beforeprint", () => [...waiting.keys()].filter((host) => host.clientWidth).forEach(draw));

/** A place for a chart; `values` fill in "$name" of its template. A text is shown in its place. */
function chart(label, name, values, least = 0) {
  const host = h("div", { class: "chart", role: "group", "aria-label": label, tabindex: "0" });
  if (typeof values === "string") return fill(host, h("p", { class: "empty" }, values));
  waiting.set(host, { label, name, values, least });
  near.observe(host);
  return host;
}

async function draw(host) {
  const { label, name, values, least } = waiting.get(host) ?? {};
  near.unobserve(host);
  waiting.delete(host);
  if (!name || !host.isConnected) return;
  const inner = h("div");
  inner.style.minWidth = `${least}px`;
  fill(host, inner);
  const filled = (key, value) => {
    if (typeof value !== "string") return value;
    return value.startsWith("$") && value.slice(1) in values ? values[value.slice(1)] : value.replace(/\$(\w+)/g, (all, part) => values[part] ?? all);
  };
  const spec = JSON.parse(JSON.stringify(board.charts[name]), filled);
  // Expressions are interpreted (`ast`), so that the page's policy need not allow code that is made from text.
  const plain = { defaultStyle: false, tooltip: { disableDefaultStyle: true }, logLevel: 1 };
  await window.vegaEmbed(inner, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: board.charts.config, ...plain });
  const save = () => savePicture(svgPicture(inner.querySelector("svg")), fileName(label));
  host.append(h("button", { type: "button", class: "quiet small save", "aria-label": `Download ${label} as PNG`, click: save }, "PNG"));
}

/** A colour for each name, that of its objective: one and the same on the whole page. */
const series = (names, objectives) => ({ names, colours: objectives.map(colourOf) });

/** The series of rows by the names that they are given. */
function seriesOf(rows, naming) {
  const named = new Map(rows.map((row) => [naming(row), row.entry.name]));
  return series([...named.keys()], [...named.values()]);
}

const colourOf = (objective) => `var(--series-${(board.colours[objective] ?? 0) + 1})`;

/** A section whose controls change `view` and make it again in its place; `make` is given `set(name)`. */
function controlled(make) {
  const host = h("div");
  const set = (name) => (value) => {
    view[name] = value;
    const focus = [...host.querySelectorAll("select")].indexOf(document.activeElement);
    fill(host, make(set));
    host.querySelectorAll("select")[focus]?.focus();
  };
  return fill(host, make(set));
}
