// Vega-Lite specifications. They are given numbers that are ready to be shown; none aggregates anything.

/** Colours of the theme. Most are left to the style sheet, so that they are right on paper, too; a scale of colours
 * has to know its ends. */
function ink() {
  const probe = byId("said");
  const known = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  return {
    text: "var(--text)",
    muted: "var(--muted)",
    line: "var(--line)",
    surface: "var(--surface)",
    onScale: known("text"),
    scale: [known("worse"), known("even"), known("better")],
    series: [1, 2, 3, 4, 5, 6, 7, 8].map((number) => `var(--series-${number})`),
  };
}

function themed(spec) {
  const colours = ink();
  const font = "system-ui, sans-serif";
  const labels = { labelColor: colours.muted, labelFont: font, labelFontSize: 12, labelLimit: 220 };
  const titles = { titleColor: colours.muted, titleFont: font, titleFontSize: 12, titleFontWeight: "normal" };
  return {
    background: "transparent",
    ...spec,
    config: {
      font,
      view: { stroke: null },
      axis: { ...labels, ...titles, gridColor: colours.line, domainColor: colours.line, tickColor: colours.line },
      legend: { ...labels, ...titles, orient: "top", symbolStrokeWidth: 3, symbolOpacity: 1 },
      title: {
        color: colours.text,
        font,
        fontSize: 13,
        fontWeight: 600,
        anchor: "start",
        offset: 8,
        subtitleColor: colours.muted,
      },
      text: { color: colours.text, font },
    },
  };
}

/** One colour for each name, everywhere the same where the suite has few names. */
function series(names) {
  const known = [...new Set(suiteGroups().flatMap((group) => group.labels))];
  const places = names.map((name) => known.indexOf(name) % 8);
  const clear = !places.includes(-1) && new Set(places).size === names.length;
  return { domain: names, range: names.map((_, i) => ink().series[clear ? places[i] : i % 8]) };
}
const tips = (...pairs) => pairs.map(([field, title]) => ({ field, title, type: "nominal" }));

/** Cells {row, column, colour, text, word, ...}; `colour` runs from -limit (worse) over 0 to limit (better). */
function heatMapSpec({ cells, rows, columns, limit, ends, tooltip, width }) {
  const colours = ink();
  const folded = width < 700 && rows.some((row) => row.includes("\n"));
  const parts = rows.flatMap((row) => (folded ? row.split("\n") : row));
  const longest = Math.min(240, width * 0.4, 10 + 7.2 * Math.max(...parts.map((part) => part.length)));
  const step = Math.max(84, Math.min(220, (width - longest - 16) / columns.length));
  const axis = { title: null, domain: false, ticks: false, labelPadding: 8, labelColor: colours.text };
  const scale = { domain: [-limit, 0, limit], range: colours.scale, interpolate: "rgb" };
  const expression = `datum.value < 0 ? '${ends[0]}' : datum.value > 0 ? '${ends[1]}' : 'not shown to differ'`;
  const legend = {
    title: null,
    values: [-limit, 0, limit],
    labelExpr: expression,
    orient: "bottom",
    gradientLength: 240,
    offset: 14,
  };
  const text = (dy, field, more) => ({
    mark: { type: "text", dy, color: colours.onScale, ...more },
    encoding: { text: { field, type: "nominal" } },
  });
  return {
    description: "Heat map of differences from the baseline",
    data: { values: cells },
    width: { step },
    height: { step: 50 },
    encoding: {
      x: {
        field: "column",
        type: "nominal",
        sort: columns,
        scale: { domain: columns },
        axis: { ...axis, orient: "top", labelAngle: 0, labelLimit: step - 8 },
      },
      y: {
        field: "row",
        type: "nominal",
        sort: rows,
        scale: { domain: rows },
        axis: {
          ...axis,
          labelLimit: longest,
          labelOffset: folded ? -7 : 0,
          labelExpr: folded ? "split(datum.label, '\\n')" : "replace(datum.label, '\\n', ' ')",
        },
      },
    },
    layer: [
      {
        mark: { type: "rect", stroke: colours.surface, strokeWidth: 3, cornerRadius: 5 },
        encoding: { color: { field: "colour", type: "quantitative", scale, legend }, tooltip },
      },
      text(-8, "text", { fontSize: 14, fontWeight: 600 }),
      text(11, "word", { fontSize: 11 }),
    ],
  };
}

/** Panels {title, rows: [{name, mean, low, high, text, tip}]}, one for each metric; bars begin at 0. */
function barsSpec({ panels, names, width }) {
  const longest = Math.max(...names.map((name) => name.length));
  const axis = Math.min(170, 12 + longest * 6.6);
  const count = Math.max(1, Math.min(3, panels.length, Math.floor(width / 320)));
  const each = Math.max(110, (width - 28 * (count - 1)) / count - axis - 8);
  return {
    description: "Bars of each metric with 95 % intervals",
    columns: count,
    spacing: { row: 28, column: 28 },
    concat: panels.map((panel) => barPanel(panel, names, each)),
    resolve: { scale: { x: "independent", y: "independent" } },
  };
}

function barPanel({ title, fraction, rows }, names, width) {
  const colours = ink();
  const ends = rows.flatMap((row) => [row.mean, row.low ?? row.mean, row.high ?? row.mean]);
  const domain = [Math.min(0, ...ends), (Math.max(0, ...ends) || 1) * 1.3];
  const percent = { labelExpr: "datum.value > 100 ? '' : datum.label" };
  const x = {
    field: "mean",
    type: "quantitative",
    scale: { domain, nice: false },
    axis: { title: null, tickCount: 4, grid: false, ...(fraction && percent) },
  };
  const y = {
    field: "name",
    type: "nominal",
    sort: names,
    axis: { title: null, domain: false, ticks: false, labelColor: colours.text, labelLimit: 160 },
  };
  const tooltip = tips(["name", "objective"], ["text", title], ["interval", "95 % interval"], ["of", "it covers"]);
  const known = rows.filter((row) => row.low !== null);
  const ends95 = { x: { field: "low", type: "quantitative" }, x2: { field: "high" } };
  return {
    title,
    width,
    height: { step: 26 },
    data: { values: rows },
    encoding: { y },
    layer: [
      {
        mark: { type: "bar", height: 15, opacity: 0.85, cornerRadiusEnd: 2 },
        encoding: { x, color: { field: "name", type: "nominal", scale: series(names), legend: null }, tooltip },
      },
      { data: { values: known }, mark: { type: "rule", strokeWidth: 1.6, color: colours.text }, encoding: ends95 },
      ...["low", "high"].map((field) => ({
        data: { values: known },
        mark: { type: "tick", thickness: 1.6, size: 9, color: colours.text },
        encoding: { x: { field, type: "quantitative" } },
      })),
      {
        mark: { type: "text", align: "left", dx: 6, fontSize: 12 },
        encoding: { x: { field: "end", type: "quantitative" }, text: { field: "text" } },
      },
    ],
  };
}

const DASHES = [
  [1, 0],
  [8, 4],
  [2, 3],
  [8, 3, 2, 3],
  [14, 4],
  [4, 4],
  [14, 3, 2, 3],
  [1, 4],
];

/** Points {name, seed, step, value}; the means over seeds are drawn over the seeds' own lines. Each name has its
 * dashes, so that a line shows through another that lies on it. */
function curvesSpec({ points, names, title, width }) {
  const few = new Set(points.map((point) => point.step)).size < 20;
  const legend = { symbolType: "stroke", symbolSize: 900 };
  const dashes = { domain: names, range: names.map((_, i) => DASHES[i % DASHES.length]) };
  const lines = (mean, mark) => ({
    transform: [{ filter: mean ? "datum.seed === 'mean'" : "datum.seed !== 'mean'" }],
    mark: { type: "line", interpolate: "linear", ...mark },
    encoding: {
      detail: { field: "seed" },
      strokeDash: { field: "name", type: "nominal", scale: dashes, title: null, legend },
    },
  });
  return {
    description: `Training curves of ${title}`,
    width: width - 70,
    height: 280,
    data: { values: points },
    encoding: {
      x: { field: "step", type: "quantitative", title: "optimizer step", axis: { grid: false, tickCount: 8 } },
      y: { field: "value", type: "quantitative", title, scale: { zero: false } },
      color: { field: "name", type: "nominal", scale: series(names), title: null, legend },
      tooltip: tips(["name", "objective"], ["seed", "seed"], ["step", "step"], ["value", title]),
    },
    layer: [
      lines(false, { strokeWidth: 1, opacity: 0.3 }),
      lines(true, { strokeWidth: 2.2, point: few && { size: 50 } }),
    ],
  };
}

/** Points {name, x, mean, low, high, text, ...} of several models; `x` is on a logarithmic scale. */
function scalingSpec({ points, names, joined, x, y, width }) {
  const colour = { field: "name", type: "nominal", scale: series(names), title: null };
  const tooltip = tips(
    ["name", "objective"],
    ["model", "model"],
    ["shown", x],
    ["text", y],
    ["interval", "95 % interval"],
  );
  const position = {
    x: {
      field: "x",
      type: "quantitative",
      scale: { type: "log", nice: false, padding: 24 },
      title: x,
      axis: { format: "~s", labelExpr: "replace(datum.label, 'G', 'B')", grid: false, tickCount: 6 },
    },
  };
  const mean = { field: "mean", type: "quantitative", scale: { zero: false }, title: y };
  return {
    description: `${y} against ${x}`,
    width: width - 70,
    height: 280,
    data: { values: points },
    encoding: { ...position, color: colour },
    layer: [
      {
        transform: [{ filter: "datum.low !== null" }],
        mark: { type: "rule", strokeWidth: 1.4, opacity: 0.7 },
        encoding: {
          y: { field: "low", type: "quantitative", scale: { zero: false }, title: y },
          y2: { field: "high" },
        },
      },
      ...(joined ? [{ mark: { type: "line", strokeWidth: 2 }, encoding: { y: mean } }] : []),
      {
        mark: { type: "point", filled: true, size: 70, opacity: 1 },
        encoding: {
          y: mean,
          shape: { field: "name", type: "nominal", scale: { domain: names }, title: null },
          tooltip,
        },
      },
    ],
  };
}
