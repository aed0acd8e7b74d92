// Charts: Vega-Lite, drawn one after another when the page has nothing else to do; and each of them as a picture.

const waiting = new Map();
const visible = () => [...waiting.keys()].filter((host) => host.clientWidth);
window.addEventListener("beforeprint", () => visible().forEach(draw));

/** Draw the first waiting chart, and come back for the next; paper and full-page pictures need those out of sight, too. */
function drawNext() {
  for (const host of waiting.keys()) if (!host.isConnected) waiting.delete(host);
  const [host] = visible();
  if (!host) return;
  draw(host);
  whenIdle();
}

const whenIdle = () => (window.requestIdleCallback ?? setTimeout)(drawNext);

/** A place for a chart of a specification, or a text in its place. */
function chart(label, spec) {
  const host = h("div", { class: "chart", role: "group", "aria-label": label, tabindex: "0" });
  if (typeof spec === "string") return fill(host, h("p", { class: "empty" }, spec));
  host.style.minHeight = `${(spec.height ?? 0) + 50}px`; // so that nothing moves when it is drawn
  waiting.set(host, { label, spec });
  whenIdle();
  return host;
}

async function draw(host) {
  const { label, spec } = waiting.get(host) ?? {};
  waiting.delete(host);
  if (!spec || !host.isConnected) return;
  const inner = h("div");
  fill(host, inner);
  // Expressions are interpreted (`ast`), so that the page's policy need not allow code that is made from text.
  const plain = { defaultStyle: false, tooltip: { disableDefaultStyle: true }, logLevel: 1 };
  await window.vegaEmbed(inner, { ...IN_PLACE, ...spec }, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: CONFIG, ...plain });
  const picture = () => svgPicture(inner.querySelector("svg"));
  const button = (kind, click) => h("button", { type: "button", class: "quiet small", "aria-label": `Download ${label} as ${kind}`, click }, kind);
  const asSvg = () => save(new Blob([picture().svg], { type: "image/svg+xml" }), `${fileName(label)}.svg`);
  host.append(h("span", { class: "save" }, button("PNG", () => savePicture(picture(), fileName(label))), button("SVG", asSvg)));
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

// Specifications. Colours are variables of page.css, so that a chart follows the theme without being drawn again.

const [TEXT, MUTED, LINE] = ["var(--text)", "var(--muted)", "var(--line)"];
const FONT = "system-ui, sans-serif";
const IN_PLACE = { width: "container", autosize: { type: "fit-x", contains: "padding" } };
const LABELS = { labelColor: MUTED, labelFont: FONT, labelFontSize: 12, labelLimit: 220, titleColor: MUTED, titleFont: FONT, titleFontSize: 12, titleFontWeight: "normal" };
const CONFIG = {
  background: "transparent",
  font: FONT,
  view: { stroke: null },
  axis: { ...LABELS, gridColor: LINE, domainColor: LINE, tickColor: LINE },
  legend: { ...LABELS, orient: "top", symbolStrokeWidth: 3, symbolOpacity: 1, columns: { expr: "max(1, floor(width / 200))" } },
  title: { color: TEXT, font: FONT, fontSize: 13, fontWeight: 600, anchor: "start", offset: 8 },
  text: { font: FONT },
};
// Each series has dashes of its own, so that a line shows through another that lies on it.
const DASHES = [[1, 0], [8, 4], [2, 3], [8, 3, 2, 3], [14, 4], [4, 4], [14, 3, 2, 3], [1, 4]];

const quantity = (field, more) => ({ field, type: "quantitative", ...more });
const tooltip = (titles) => Object.entries(titles).map(([field, title]) => ({ field, title, type: "nominal" }));
const hued = ({ names, colours }, more) => ({ field: "name", type: "nominal", scale: { domain: names, range: colours }, ...more });
const has = (field) => [{ filter: `isValid(datum.${field})` }];

/** The bars of one metric: rows {name, mean, low, high, end, text, interval}. Bars begin at 0. */
function metricSpec({ rows, title, fraction, domain, colour }) {
  const tick = (end) => ({ transform: has("low"), mark: { type: "tick", thickness: 1.6, size: 9, color: TEXT }, encoding: { x: quantity(end) } });
  const axis = { title: null, tickCount: 4, grid: false, labelExpr: fraction ? "datum.value > 100 ? '' : datum.label" : "datum.label" };
  const tips = tooltip({ name: "objective", text: title, interval: "95 % interval" });
  return {
    title,
    height: 26 * rows.length,
    data: { values: rows },
    encoding: { y: { field: "name", type: "nominal", sort: null, axis: { title: null, domain: false, ticks: false, labelColor: TEXT, labelLimit: 160 } } },
    layer: [
      { mark: { type: "bar", height: 15, opacity: 0.85, cornerRadiusEnd: 2 }, encoding: { x: quantity("mean", { scale: { domain, nice: false }, axis }), color: hued(colour, { legend: null }), tooltip: tips } },
      { transform: has("low"), mark: { type: "rule", strokeWidth: 1.6, color: TEXT }, encoding: { x: quantity("low"), x2: { field: "high" } } },
      tick("low"),
      tick("high"),
      { mark: { type: "text", align: "left", dx: 6, fontSize: 12, color: TEXT }, encoding: { x: quantity("end"), text: { field: "text" } } },
    ],
  };
}

/** Training curves of points {name, seed, step, value}; the seed "mean" is drawn over the seeds' lines. */
function curvesSpec({ rows, title, point, colour }) {
  const legend = { title: null, legend: { symbolType: "stroke", symbolSize: 900 } };
  const dashes = { field: "name", type: "nominal", scale: { domain: colour.names, range: DASHES }, ...legend };
  const lines = (filter, mark) => ({ transform: [{ filter }], mark: { type: "line", ...mark }, encoding: { detail: { field: "seed" }, strokeDash: dashes } });
  return {
    description: `Training curves of ${title}`,
    height: 280,
    data: { values: rows },
    encoding: {
      x: quantity("step", { title: "optimizer step", axis: { grid: false, tickCount: 8 } }),
      y: quantity("value", { title, scale: { zero: false } }),
      color: hued(colour, legend),
      tooltip: tooltip({ name: "objective", seed: "seed", step: "step", value: title }),
    },
    layer: [lines("datum.seed !== 'mean'", { strokeWidth: 1, opacity: 0.3 }), lines("datum.seed === 'mean'", { strokeWidth: 2.2, point })],
  };
}

/** One metric against `x` on a logarithmic scale: points {name, x, mean, low, high, text, shown, model, interval}. */
function scalingSpec({ rows, x, y, lines, colour }) {
  const up = { scale: { zero: false }, title: y };
  const shape = { field: "name", type: "nominal", scale: { domain: colour.names }, title: null };
  const tips = tooltip({ name: "objective", model: "model", shown: x, text: y, interval: "95 % interval" });
  const axis = { format: "~s", labelExpr: "replace(datum.label, 'G', 'B')", grid: false, tickCount: 6 };
  return {
    description: `${y} against ${x}`,
    height: 280,
    data: { values: rows },
    encoding: { x: quantity("x", { scale: { type: "log", nice: false, padding: 24 }, title: x, axis }), color: hued(colour, { title: null }) },
    layer: [
      { transform: has("low"), mark: { type: "rule", strokeWidth: 1.4, opacity: 0.7 }, encoding: { y: quantity("low", up), y2: { field: "high" } } },
      { mark: { type: "line", strokeWidth: 2, opacity: lines ? 1 : 0 }, encoding: { y: quantity("mean", up) } },
      { mark: { type: "point", filled: true, size: 70, opacity: 1 }, encoding: { y: quantity("mean", up), shape, tooltip: tips } },
    ],
  };
}

/** One metric against another: points {name, shown, x, x_low, x_high, x_text, y, ...}; `x` and `y` are {title, scale}. */
function tradeOffSpec({ rows, x, y, colour }) {
  const along = ({ title, scale }, padding) => ({ title, scale: { ...scale, nice: false, padding }, axis: { tickCount: 6, grid: false, domain: true } });
  const [across, up] = [along(x, 70), along(y, 24)];
  const at = { x: quantity("x", across), y: quantity("y", up) };
  const rule = (side, axis) => ({ transform: has(`${side}_low`), mark: { type: "rule", strokeWidth: 1.6, opacity: 0.6 }, encoding: { ...at, [side]: quantity(`${side}_low`, axis), [`${side}2`]: { field: `${side}_high` } } });
  return {
    description: `${y.title} against ${x.title}`,
    height: 340,
    data: { values: rows },
    encoding: { color: hued(colour, { legend: null }) },
    layer: [
      rule("x", across),
      rule("y", up),
      { mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { ...at, tooltip: tooltip({ name: "objective", x_text: x.title, y_text: y.title }) } },
      { mark: { type: "text", align: "left", dx: 9, dy: -10, fontSize: 12 }, encoding: { ...at, text: { field: "shown" }, color: { value: TEXT } } },
    ],
  };
}

/** The differences of a comparison, rows {metric, effect, low, high, verdict, label}: the picture of `emobench compare`. */
function forestSpec(rows, unit) {
  const widest = Math.min(240, document.documentElement.clientWidth / 4);
  const own = (name, value) => (["minExtent", "labelLimit"].includes(name) ? widest : typeof value === "string" ? value.replace("$unit", unit) : value);
  const spec = JSON.parse(JSON.stringify(board.forest), own);
  // A row's name is what follows the tab; a heading stands over the rows of its name.
  const scale = { domain: rows.map((row) => row.metric) };
  for (const { encoding: { x } } of spec.layer) if (x.field) x.scale = { padding: 12 };
  for (const { encoding: { y } } of spec.layer) if (y) Object.assign(y, { scale, axis: { ...y.axis, domain: false, labelExpr: "slice(split(datum.label, '\\t'), -1)[0]" } });
  const y = { field: "metric", type: "nominal", sort: null, scale };
  const point = spec.layer.find(({ mark }) => mark.type === "point");
  point.encoding.tooltip = tooltip({ name: "of", text: "difference", interval: "95 % interval", p: "p", word: "verdict" });
  const heading = { mark: { type: "text", align: "left", fontWeight: 600, fontSize: 12, color: TEXT, limit: document.documentElement.clientWidth - 60 }, encoding: { y, x: { value: 5 - widest }, text: { field: "heading" } } };
  return { ...spec, layer: [...spec.layer, { transform: has("heading"), ...heading }], height: 24 * rows.length, data: { values: rows } };
}

/** A heading in lines that fit the window, broken at spaces. */
function wrapped(heading) {
  const letters = Math.floor((document.documentElement.clientWidth - 90) / 7.5);
  const lines = heading.match(new RegExp(`.{1,${letters}}(?= |$)|\\S+`, "g")) ?? [];
  return lines.map((line) => line.trim());
}

/** A panel of the picture of a search, in the page's colours. */
function tuningSpec({ width, title, ...spec }, rows) {
  const objectives = new Map(rows.map((row) => [row.label, row.entry.name]));
  const own = structuredClone(spec);
  for (const { encoding: { color } } of own.layer) color.scale.range = color.scale.domain.map((name) => colourOf(objectives.get(name)));
  return { ...own, title: title.text };
}

/** A forest plot for each unit of [heading or "", name, test]; a test is {unit, effect, low, high, word, ...}. */
function forests(named) {
  const drawn = named.filter(([, , test]) => Number.isFinite(test?.effect));
  return [...Map.groupBy(drawn, ([, , test]) => test.unit)].map(([unit, own]) => {
    const rows = [...Map.groupBy(own, ([heading]) => heading)].flatMap(([heading, tests]) => [
      ...wrapped(heading).map((line, i) => ({ metric: `${heading} ${i}\t`, heading: line, label: "" })),
      ...tests.map(([, name, test]) => ({ ...test, name, metric: `${heading}\t${name}`, verdict: test.word, label: test.word })),
    ]);
    return chart(`Differences in ${unit}`, forestSpec(rows, unit));
  });
}
