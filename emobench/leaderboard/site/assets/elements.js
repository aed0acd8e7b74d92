// Elements, and the data of the page. What comes from an entry is always a text node or an attribute's value, never markup.

const ABSENT = "–";
const byId = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)];
const say = (text) => (byId("status").textContent = text); // to a screen reader

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  return fill(node, ...children);
}

function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

function select(label, options, value, changed) {
  const field = h("select", { "aria-label": label, change: () => changed(field.value) });
  fill(field, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", { class: "field" }, h("span", {}, label), field);
}

const same = (values) => values.map((value) => [value, value]);

function section(title, about, controls, ...body) {
  const shown = controls.filter(Boolean);
  return h(
    "section",
    { class: "panel", "aria-label": title },
    h("h2", {}, title),
    h("p", { class: "about" }, about),
    shown.length > 0 && h("div", { class: "controls" }, shown),
    body,
  );
}

const number = (...shown) => h("td", { class: "number" }, ...shown);

/** A table of rows of texts and cells; the first of a row is its head. Columns named in `numeric` are right-aligned. */
function table(caption, heads, rows, numeric = []) {
  const cell = (item, i) => {
    if (item instanceof HTMLTableCellElement) return item;
    return i ? (numeric.includes(i) ? number(item) : h("td", {}, item)) : h("th", { scope: "row" }, item);
  };
  const right = (i) => numeric.includes(i) || rows.some((row) => row[i]?.classList?.contains("number"));
  const head = heads.map((text, i) => h("th", { scope: "col", class: right(i) && "number" }, text));
  const body = rows.map((row) => h("tr", {}, row.map(cell)));
  const node = h("table", { class: "plain" }, h("caption", { class: "unseen" }, caption));
  node.append(h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return scrolling(h("div", {}, node), `${caption}, table`);
}

/** Let a node scroll sideways, and say in classes on which sides more is hidden, for the style sheet to fade them. */
function scrolling(node, label) {
  const look = () => {
    const left = Math.abs(node.scrollLeft);
    node.classList.toggle("more-left", left > 1);
    node.classList.toggle("more-right", node.scrollWidth - node.clientWidth - left > 1);
  };
  node.classList.add("scroller");
  for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": label })) node.setAttribute(name, value);
  node.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  for (const part of [node, ...node.children]) sizes.observe(part);
  return node;
}

// The data: an index at once, the details of an entry when they are asked for.

let board = null;
const chunks = new Map();

async function inflate(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function loadBoard() {
  board = await inflate("index");
  board.entries.forEach((entry, place) => Object.assign(entry, { place, rows: [] }));
  board.groups.forEach((group, place) => {
    group.number = place;
    group.suite = board.suites[group.suite];
    group.rows = group.rows.map(([entry, label, rank, cells], at) => ({ group, place: at, entry: board.entries[entry], label, rank, cells }));
    for (const row of group.rows) row.entry.rows.push(row);
    const tests = group.tests.map((values) => Object.fromEntries(board.fields.map((name, i) => [name, values[i]])));
    group.tests = new Map(tests.map((test) => [`${test.baseline}/${test.candidate}/${test.metric}`, test]));
  });
}

async function details(entry) {
  const chunk = Math.floor(entry.place / board.chunk);
  if (!chunks.has(chunk)) chunks.set(chunk, inflate(`chunk-${chunk}`));
  return (await chunks.get(chunk))[entry.place % board.chunk];
}

const entryOf = (id) => board.entries.find((entry) => entry.id === id);
const testOf = (base, row, metric) => base.group.tests.get(`${base.place}/${row.place}/${metric}`);
const measured = (row, metric) => typeof row.cells[metric] === "object" && row.cells[metric];

// Charts: a template of Python's, filled in when it comes near the window.

const waiting = new Map();
const near = new IntersectionObserver((seen) => seen.forEach((item) => item.isIntersecting && draw(item.target)), { rootMargin: "400px" });
window.addEventListener("beforeprint", () => [...waiting.keys()].filter((host) => host.clientWidth).forEach(draw));

/** A place for a chart; `values` fill in "$name" of its template. A text is shown in its place. */
function chart(label, name, values, least = 0) {
  const host = h("div", { class: "chart", role: "group", "aria-label": label, tabindex: "0" });
  if (typeof values === "string") return fill(host, h("p", { class: "empty" }, values));
  waiting.set(host, { name, values, least });
  near.observe(host);
  return host;
}

function draw(host) {
  const { name, values, least } = waiting.get(host) ?? {};
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
  window.vegaEmbed(inner, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: board.charts.config, ...plain });
}

/** A colour for each name, everywhere the same where the suite has few names. */
function series(names) {
  const known = unique(suiteRows().map((row) => row.label));
  const places = names.map((name) => known.indexOf(name) % 8);
  const clear = !places.includes(-1) && new Set(places).size === names.length;
  return { names, colours: names.map((_, i) => `var(--series-${(clear ? places[i] : i % 8) + 1})`) };
}

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
