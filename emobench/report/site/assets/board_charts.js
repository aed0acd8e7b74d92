// Differences from a baseline as a table of verdicts, and charts: metrics of a group, its trainings, and scaling.

const MOST_LINES = 30;
const DECIDED = ["better", "worse", "tied"];

/** For each group the values of the baseline, and under them the difference of each other row with its verdict. */
function differences(rows) {
  const title = "Differences from the baseline";
  return controlled((set) => {
    const suite = suiteNow();
    const names = unique([suite.baseline, ...suiteRows().map((row) => row.label)].filter(Boolean));
    const name = names.includes(state.base) ? state.base : names[0];
    const chosen = (value) => { keep("base", value === suite.baseline ? "" : value); set("undecided")(view.undecided); };
    const byGroup = [...Map.groupBy(rows, (row) => row.group)].map(([group, own]) => ({ group, own, base: baseOf(group, name) }));
    const lines = byGroup.flatMap(({ group, own, base }) => (base ? own.filter((row) => row !== base).map((row) => ({ group, base, row })) : []));
    const decided = lines.filter(({ base, row }) => suite.metrics.some((metric, i) => isShown(metric) && DECIDED.includes(testOf(base, row, i)?.word)));
    const of = decided.length && !view.undecided ? decided : lines;
    const shown = of.slice(0, MOST_LINES).map(withTests);
    const left = byGroup.filter(({ base }) => !base).length;
    const notes = [
      of.length > shown.length && `${shown.length} of ${of.length} rows are shown; the filters select fewer.`,
      left > 0 && `Groups without ${name}: ${left}.`,
      shown.some(({ tests }) => tests.some((test, i) => test?.word === "not tested" && isShown(suite.metrics[i]))) && "Not tested here: use emobench compare A B.",
    ];
    const more = lines.length - decided.length;
    const toggle = () => set("undecided")(!view.undecided);
    const node = shown.length > 0 && verdictTable(title, shown);
    const { controls, drawn } = forestOf(shown);
    const save = () => savePicture(tablePicture(node.querySelector("table"), `Differences from ${name}`), fileName(title));
    return section(
      title,
      "“Better” and “worse”: the difference is beyond the noise of seeds and examples. Differences of perplexities are in percent. Select a name for intervals and p‑values.",
      [select("Baseline", same(names), name, chosen), ...controls(set), node && h("button", { type: "button", class: "quiet", "aria-label": `Download ${title} as PNG`, click: save }, "PNG")],
      drawn,
      node || h("p", { class: "empty" }, "No group of these rows has the baseline."),
      notes.some(Boolean) && h("p", { class: "note" }, notes.filter(Boolean).join(" ")),
      decided.length > 0 && more > 0 && h("p", { class: "note" }, `Rows without a verdict: ${more}. `, h("button", { type: "button", class: "quiet small", click: toggle }, view.undecided ? "Hide them" : "Show them")),
    );
  });
}

/** The forest plot of one metric over tasks and groups, or of the metrics of one task; and what there is to choose from. */
function forestOf(lines) {
  const { metrics } = suiteNow();
  const all = unique(lines.map(({ group }) => group));
  const tasks = unique(metrics.map(({ task }) => task)).length;
  // Of groups with several tasks, one is drawn.
  const chosen = tasks > 1 && all.length > 1 && (all.find((one) => String(one.number) === view.forest) ?? all[0]);
  const groups = chosen ? [chosen] : all;
  const over = groups.length > 1 || tasks > 1;
  const tests = (i) => lines.map((line) => line.tests[i]).filter((test) => Number.isFinite(test?.effect) && test.word !== "descriptive");
  const known = [...metrics.keys()].filter((i) => isShown(metrics[i]) && tests(i).length);
  const kindOf = (i) => (over ? metrics[i].key.split("/").pop() : tests(i)[0].unit);
  const titleOf = (i) => (over ? metrics[i].short.slice(tasks > 1 ? metrics[i].task.length + 1 : 0) : kindOf(i));
  const kinds = [...new Map(known.map((i) => [kindOf(i), titleOf(i)]))];
  const kind = kinds.some(([one]) => one === view.kind) ? view.kind : kinds[0]?.[0];
  const several = unique(lines.map(({ row }) => row.label)).length > 1;
  const placed = ({ group, row, tests: own }, i) => {
    const place = over ? metrics[i].task : metrics[i].title;
    if (groups.length === 1 && !several) return ["", place, own[i]];
    return [[groups.length > 1 && group.title, place].filter(Boolean).join(" · "), row.label, own[i]];
  };
  const drawn = groups.flatMap((group) => known.filter((i) => kindOf(i) === kind).flatMap((i) => lines.filter((line) => line.group === group).map((line) => placed(line, i))));
  const controls = (set) => [
    kinds.length > 1 && select(`${over ? "Metric" : "Unit"} of the chart`, kinds, kind, set("kind")),
    chosen && select("Group of the chart", all.map((group) => [group.number, group.title]), chosen.number, set("forest")),
  ];
  return { controls, drawn: forests(drawn) };
}

const withTests = ({ group, base, row }) => ({ group, base, row, tests: group.suite.metrics.map((_, i) => measured(base, i) && measured(row, i) && difference(base, row, i)) });

/** The baseline's row in a group: of several settings of the suite's baseline, the first. */
function baseOf(group, name) {
  return group.rows.find((row) => row.label === name) ?? (name === group.suite.baseline ? group.rows[group.baseline] : undefined);
}

function verdictTable(title, lines) {
  const { metrics } = suiteNow();
  const visible = [...metrics.keys()].filter((i) => isShown(metrics[i]) && lines.some(({ tests }) => tests[i]));
  const told = visible.filter((i) => lines.some(({ tests }) => tests[i] && tests[i].word !== "descriptive"));
  const columns = told.length ? told : visible;
  // Each metric has its own unit: its largest difference gets the full colour. Of the square root, so that small
  // differences beside a large one still show. Only what is beyond noise has a colour.
  const beyond = (test) => ["better", "worse"].includes(test?.word);
  const most = new Map(columns.map((i) => [i, Math.max(...lines.map(({ tests }) => (beyond(tests[i]) ? Math.abs(tests[i].effect) : 0)))]));
  const cell = (test, i) => {
    if (!test) return h("td", { class: "none" }, ABSENT);
    const node = h("td", { class: beyond(test) && test.word, "data-tip": tipOf(test) }, h("b", {}, test.text), h("small", {}, test.word));
    if (beyond(test)) node.style.setProperty("--share", `${(20 + 80 * Math.sqrt(Math.abs(test.effect) / (most.get(i) || 1))).toFixed(0)}%`);
    return node;
  };
  const head = h("tr", {}, h("th", { scope: "col" }, "Objective"), columns.map((i) => h("th", { scope: "col" }, term(metrics[i].name, metrics[i].about), h("small", {}, metrics[i].head))));
  const bodies = [...Map.groupBy(lines, ({ group }) => group)].map(([group, own]) => {
    const [{ base }] = own;
    const title = h("tr", { class: "title" }, h("th", { scope: "rowgroup", colspan: columns.length + 1 }, h("strong", {}, group.title)));
    const first = h("th", { scope: "row" }, dot(base.entry), base.label, h("small", {}, "baseline"));
    return h("tbody", {}, title, h("tr", { class: "base" }, first, columns.map((i) => h("td", {}, ...valueOf(base, i)))), own.map(({ row, tests }) => h("tr", {}, against(base, row, tests), columns.map((i) => cell(tests[i], i)))));
  });
  const node = h("table", { class: "told" }, h("caption", { class: "unseen" }, title), h("thead", {}, head), bodies);
  return h("div", {}, scrolling(h("div", {}, node), `${title}, table`), copyButtons(node, title));
}

/** The head of a row: its objective, which leads to all about the two, and its verdicts, or why there is none. */
function against(base, row, tests) {
  const words = tests.filter((test, i) => test && !suiteNow().metrics[i].secondary).map(({ word }) => word);
  const counts = DECIDED.map((word) => [words.filter((one) => one === word).length, word]).filter(([count]) => count);
  const told = counts.map((count) => count.join(" ")).join(" · ") || tests.find((test) => test?.word === "undetermined")?.why.split(", or ")[0];
  return h("th", { scope: "row" }, dot(row.entry), h("a", { href: `#/compare/${base.entry.id}/${row.entry.id}` }, breakable(row.label)), told && h("small", {}, told));
}

function tipOf({ text, word, interval, p, family, detectable, why }) {
  const known = (label, value) => value && value !== ABSENT && `${label} ${value}`;
  return [`${text}: ${word}`, known("95 % interval", interval), known("p", p && p !== ABSENT && `${p} (${family})`), known("detectable", detectable), known("because", why)].filter(Boolean).join("\n");
}

/** What is known of a row against the baseline's on a metric; of what was not tested, the difference of the means. */
function difference(base, row, metric) {
  const test = testOf(base, row, metric);
  if (test) return test;
  const [from, to] = [base, row].map((one) => one.cells[metric].mean);
  const log = suiteNow().metrics[metric].log;
  const text = log ? `${(100 * (to / from - 1)).toFixed(1)} %` : (to - from).toFixed(row.group.places[metric]);
  return { text: to > from ? `+${text}` : text, word: "not tested" };
}

// Metrics of one group as bars, its trainings as curves, and how a metric scales with models and training.

function groupPanels(rows, groups) {
  return controlled((set) => {
    const group = groups.find((one) => String(one.number) === view.group) ?? groups[0];
    const all = rows.filter((row) => row.group === group);
    const own = all.slice(0, 24);
    const left = all.length > own.length ? ` ${own.length} of ${all.length} rows are drawn; the filters select fewer.` : "";
    const control = () => groups.length > 1 && select("Group", groups.map((one) => [one.number, one.title]), group.number, set("group"));
    const trained = own.filter((row) => !row.entry.untrained).slice(0, 12);
    const host = h("div", {}, h("p", { class: "empty" }, "Reading the curves …"));
    curvesOf(trained.map((row) => [row.label, row.entry])).then((curves) => fill(host, curvesBody(curves)));
    return [
      group.tuning.length > 0 && section("Tuning", `${group.title}: the trials of each objective on validation data. Large points are the choices.`, [control()], h("div", { class: "bars" }, group.tuning.map((spec) => chart(spec.title.text, tuningSpec(spec, all))))),
      section("Metrics by task", `${group.title}: every metric with its 95 % interval. Bars begin at 0.${left}`, [control()], bars(own, (row) => row.label)),
      section("Training curves", `${group.title}: logged over the optimizer's steps.`, [control()], host),
    ];
  });
}

const ends = (row) => [row.mean, row.low, row.high].filter((end) => end !== undefined);

/** A chart for each metric, with a bar for each row that has it. */
function bars(rows, naming) {
  const panels = rows[0].group.suite.metrics.map((metric, i) => {
    const known = rows.filter((row) => measured(row, i)).map((row) => ({ name: naming(row), ...row.cells[i], end: Math.max(...ends(row.cells[i])) }));
    const all = known.flatMap(ends);
    const domain = [Math.min(0, ...all), (Math.max(0, ...all) || 1) * 1.3];
    const colour = series(rows.map(naming), rows.map((row) => row.entry.name));
    return known.length > 0 && isShown(metric) && chart(`Metric ${metric.title}`, metricSpec({ rows: known, title: metric.title, fraction: metric.fraction, domain, colour }));
  });
  return h("div", { class: "bars" }, panels);
}

async function curvesOf(named) {
  return Promise.all(named.map(async ([name, entry]) => ({ name, objective: entry.name, curves: (await details(entry)).curves })));
}

/** Curves of {name, objective, curves}, with a control for what is drawn. */
function curvesBody(all) {
  const lines = all.flatMap(({ name, objective, curves }) => curves.map(({ training, parts }) => ({ name: training > 1 ? `${name}, training ${training}` : name, objective, parts })));
  const parts = unique(lines.flatMap((line) => Object.keys(line.parts)));
  if (!parts.length) return h("p", { class: "empty" }, "No training curves. To include them: emobench leaderboard site OUT --runs DIR");
  return controlled((set) => {
    if (!parts.includes(view.part)) view.part = ["mle", "validation mle"].find((part) => parts.includes(part)) ?? parts[0];
    const known = lines.filter((line) => line.parts[view.part]);
    const points = known.flatMap(({ name, parts: { [view.part]: { mean, seeds } } }) =>
      Object.entries({ ...seeds, mean }).flatMap(([seed, curve]) => curve.steps.map((step, i) => ({ name, seed, step, value: curve.values[i] }))),
    );
    const steps = unique(points.map((point) => point.step)).length;
    const colour = series(known.map((line) => line.name), known.map((line) => line.objective));
    return [
      h("div", { class: "controls" }, select("Curve", same(parts), view.part, set("part"))),
      chart("Training curves", steps > 1 ? curvesSpec({ rows: points, title: view.part, point: steps < 20 && { size: 50 }, colour }) : oneStep(points)),
      h("p", { class: "note" }, "Thick lines: means over seeds. Thin lines: single seeds."),
    ];
  });
}

function oneStep(points) {
  const means = points.filter(({ seed, value }) => seed === "mean" && value !== null);
  if (!means.length) return `No finite value of ${view.part} was logged.`;
  const values = means.map(({ name, value }) => `${name} ${value}`).join(", ");
  return `One step was logged (${means[0].step}), which makes no curve; ${view.part}: ${values}.`;
}

function scaling(rows) {
  const axes = { parameters: "model parameters", tokens: "training tokens of a run" };
  const { metrics } = suiteNow();
  return controlled((set) => {
    const place = metrics[view.scaled] ? Number(view.scaled) : 0;
    const { task, title } = metrics[place];
    const protocol = ({ group }) => group.protocols[task || Object.keys(group.protocols)[0]];
    const spread = (axis) => new Set(rows.map((row) => row.entry.sizes[axis]?.[0]).filter(Boolean)).size;
    if (spread(view.axis) < 2) view.axis = Object.keys(axes).find((axis) => spread(axis) > 1) ?? view.axis;
    const known = rows.filter((row) => measured(row, place) && row.entry.sizes[view.axis] && !row.entry.untrained);
    const alike = known.filter((row) => protocol(row) === protocol(known[0]));
    const naming = (row) => (unique(alike.map((one) => one.label)).length > 12 ? row.entry.name : row.label);
    // One point of a name and size, and only names that have several sizes: a line says how one changes with size.
    const found = Map.groupBy(alike, (row) => JSON.stringify([naming(row), row.entry.sizes[view.axis][0]]));
    const first = [...found.values()].map((own) => own.find((row) => row.group.recipe === known[0].group.recipe) ?? own[0]);
    const sizes = Map.groupBy(first, naming);
    const drawn = first.filter((row) => sizes.get(naming(row)).length > 1);
    const own = drawn.slice(0, 500);
    const points = own.map((row) => ({ ...row.cells[place], name: naming(row), x: row.entry.sizes[view.axis][0], shown: row.entry.sizes[view.axis][1], model: row.entry.model }));
    const few = known.length ? `A curve needs two rows of an objective with different ${axes[view.axis]}.` : `No row has its number of ${axes[view.axis]}.`;
    const spec = scalingSpec({ rows: points, x: axes[view.axis], y: title, lines: own.length < 100, colour: seriesOf(own, naming) });
    const notes = [
      drawn.length > own.length && `${own.length} of ${drawn.length} rows are drawn; the filters select fewer.`,
      known.length > alike.length && `Rows with other protocols, not drawn: ${known.length - alike.length}.`,
      alike.length > first.length && "For each objective and size, one row is drawn.",
    ];
    return section(
      "Scaling",
      "One metric against the size of the model or of the training; 95 % intervals.",
      [metrics.length > 1 && select("Metric", metrics.map((metric, i) => [i, metric.title]), place, set("scaled")), select("Against", Object.entries(axes), view.axis, set("axis"))],
      chart("Scaling", unique(points.map((point) => point.x)).length > 1 ? spec : few),
      h("p", { class: "note" }, notes.filter(Boolean).join(" ")),
    );
  });
}

// One metric against another, each row a point with both intervals.

function tradeOff(rows, groups) {
  const { metrics } = suiteNow();
  const own = (name, other) => metrics.find((metric) => metric.key === state[name]) ?? other;
  return controlled((set) => {
    if (metrics.length < 2) return [];
    const x = own("x", metrics[0]);
    const y = own("y", metrics.find((metric) => metric !== x && !metric.secondary && metric.better !== null) ?? metrics.find((metric) => metric !== x));
    const [at, up] = [x, y].map((metric) => metrics.indexOf(metric));
    const group = groups.find((one) => String(one.number) === view.plane) ?? groups[0];
    const all = rows.filter((row) => row.group === group && measured(row, at) && measured(row, up));
    const drawn = all.slice(0, 60);
    const points = named(drawn.map((row) => ({ name: row.label, ...plane(row.cells[at], "x"), ...plane(row.cells[up], "y") })));
    const axis = (metric, name) => ({ title: metric.title, scale: scaleOf(metric, points, name) });
    const spec = tradeOffSpec({ rows: points, x: axis(x, "x"), y: axis(y, "y"), colour: seriesOf(drawn, (row) => row.label) });
    const choice = (label, name, metric) => select(label, metrics.map((one) => [one.key, one.title]), metric.key, (key) => { keep(name, key); set("plane")(view.plane); });
    return section(
      "Trade-off",
      ["95 % intervals. ", better(x, y)].join(""),
      [choice("x axis", "x", x), choice("y axis", "y", y), groups.length > 1 && select("Group", groups.map((one) => [one.number, one.title]), group.number, set("plane"))],
      chart("Trade-off", points.length ? spec : "No row of this group has both metrics."),
      all.length > drawn.length && h("p", { class: "note" }, `${drawn.length} of ${all.length} rows are drawn; the filters select fewer.`),
    );
  });
}

const plane = (cell, axis) => ({ [axis]: cell.mean, [`${axis}_low`]: cell.low, [`${axis}_high`]: cell.high, [`${axis}_text`]: shownValue(cell) });

/** Points with the texts beside them: of points that lie on one another, all names stand at the first. */
function named(points) {
  const near = (a, b) => ["x", "y"].every((axis) => {
    const values = points.map((point) => point[axis]);
    return Math.abs(a[axis] - b[axis]) <= 0.04 * (Math.max(...values) - Math.min(...values));
  });
  const heads = [];
  for (const point of points) {
    const head = heads.find((other) => near(other, point));
    point.shown = "";
    if (head) head.shown += `, ${point.name}`;
    else heads.push(Object.assign(point, { shown: point.name }));
  }
  return points;
}

/** Of perplexities that are far apart a logarithmic scale. */
function scaleOf(metric, points, axis) {
  const means = points.map((point) => point[axis]);
  const log = metric.log && Math.max(...means) > 3 * Math.min(...means);
  return log ? { type: "log" } : { type: "linear", zero: false };
}

function better(x, y) {
  const across = { true: "right", false: "left" }[x.better];
  const up = { true: "top", false: "bottom" }[y.better];
  const words = [up, across].filter(Boolean);
  return words.length ? `The better side is the ${words.join(" ")}.` : "";
}
