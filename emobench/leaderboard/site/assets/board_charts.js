// Differences from a baseline: metrics of one group, or groups on one metric, by objectives.

const MOST_ROWS = 40;
const MOST_COLUMNS = 14;

function differences(rows, groups) {
  const suite = suiteNow();
  return controlled((set) => {
    const names = unique([suite.baseline, ...suiteRows().map((row) => row.label)].filter(Boolean));
    if (!names.includes(view.baseline)) view.baseline = names[0];
    const every = groups.slice(0, 200).map((group) => [`g${group.number}`, `every metric of ${group.title}`]);
    const options = [...(groups.length > 1 ? suite.metrics.map((metric, i) => [String(i), metric.title]) : []), ...every];
    if (!options.some(([value]) => value === view.metric)) view.metric = options[0][0];
    const controls = [options.length > 1 && select("Rows", options, view.metric, set("metric")), select("Baseline", same(names), view.baseline, set("baseline"))];
    const map = heatMap(rows, groups);
    const least = 170 + 90 * map.columns.length;
    const title = "Differences from the baseline";
    const values = { rows: map.cells, columns: map.columns, label_offset: map.every ? -7 : 0, height: 50 * map.lines };
    return section(
      title,
      "Each cell is a row's mean minus the baseline's (of perplexities the relative change), and whether noise explains it.",
      controls,
      chart(title, "differences", map.cells.length ? values : "No row here has the baseline in its group.", least),
      map.notes && h("p", { class: "note" }, map.notes),
    );
  });
}

/** The baseline's row in a group: of several settings of the suite's baseline, the first. */
function baseOf(group) {
  return group.rows.find((row) => row.label === view.baseline) ?? (view.baseline === group.suite.baseline ? group.rows[group.baseline] : undefined);
}

function heatMap(rows, groups) {
  const every = view.metric.startsWith("g");
  const shown = every ? [suiteNow().groups[Number(view.metric.slice(1))]] : groups;
  const metrics = every ? [...suiteNow().metrics.keys()].filter((i) => isShown(suiteNow().metrics[i])) : [Number(view.metric)];
  const lines = [...metrics].flatMap((metric) => shown.map((group) => ({ group, metric, base: baseOf(group) })));
  const known = lines.filter(({ base, metric }) => base && measured(base, metric));
  const own = [...unique(known.map(({ base }) => base)), ...rows.filter((row) => shown.includes(row.group))];
  const byName = unique(own.map((row) => row.label)).length > MOST_COLUMNS;
  const column = (row) => (byName ? row.entry.name : row.label);
  const columns = unique(own.map(column)).slice(0, MOST_COLUMNS);
  const first = new Map(own.toReversed().map((row) => [`${row.group.number}/${column(row)}`, row]));
  const made = known.map(({ group, metric, base }) => {
    const line = columns.map((name) => first.get(`${group.number}/${name}`)).filter((row) => row && measured(row, metric));
    return { group, metric, cells: line.map((row) => ({ ...difference(base, row, metric), column: column(row) })) };
  });
  const told = made.filter(({ cells }) => cells.some(({ word }) => word !== "baseline")).slice(0, MOST_ROWS);
  // Each metric has its own unit: its largest difference gets the full colour. Of the square root, so that small
  // differences beside a large one still show. Only what is beyond noise has a colour.
  const most = (cells) => Math.max(...cells.map((cell) => Math.abs(cell.effect ?? 0))) || 1;
  const overall = most(told.flatMap(({ cells }) => cells));
  const cells = told.flatMap(({ group, metric, cells: line }) => {
    const { name, head } = suiteNow().metrics[metric];
    const row = every ? [name, head].filter(Boolean).join("\n") : group.title;
    return line.map((cell) => ({ ...cell, row, ...shade(cell, every ? most(line) : overall) }));
  });
  const notes = [
    !every && shown.length > told.length && `${told.length} of ${shown.length} groups are shown: those that have the baseline, at most ${MOST_ROWS}.`,
    unique(own.map(column)).length > columns.length && `${columns.length} objectives are shown; choose fewer above.`,
    byName && "Of several settings of an objective the first is shown.",
    every && "Colours are scaled row by row.",
    cells.some((cell) => cell.word === "not tested") && "What is not tested here, emobench compare A B tests.",
  ];
  return { cells, columns, every, lines: told.length, notes: notes.filter(Boolean).join(" ") };
}

function shade({ word, effect }, most) {
  const beyond = ["better", "worse"].includes(word);
  return { side: beyond ? word : "not shown to differ", shade: beyond ? Math.sqrt(Math.abs(effect) / most) : 1 };
}

/** What is known of a row against the baseline's on a metric; of what was not tested, the difference of the means. */
function difference(base, row, metric) {
  if (row === base) return { text: row.cells[metric].text, word: "baseline" };
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
    const left = all.length > own.length ? ` ${own.length} of ${all.length} rows are drawn; choose fewer above.` : "";
    const control = () => groups.length > 1 && select("Group", groups.map((one) => [one.number, one.title]), group.number, set("group"));
    const trained = own.filter((row) => !row.entry.untrained).slice(0, 12);
    const host = h("div", {}, h("p", { class: "empty" }, "Reading the curves …"));
    curvesOf(trained.map((row) => [row.label, row.entry])).then((curves) => fill(host, curvesBody(curves)));
    return [
      section("Metrics by task", `${group.title}: every metric with its 95 % interval. Bars begin at 0.${left}`, [control()], bars(own, (row) => row.label)),
      section("Training curves", `What ${group.title}'s trainings logged, over the optimizer's steps.`, [control()], host),
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
    const values = { rows: known, title: metric.title, height: 26 * known.length, fraction: metric.fraction, domain, ...series(rows.map(naming), rows.map((row) => row.entry.name)) };
    return known.length > 0 && isShown(metric) && chart(`Metric ${metric.title}`, "metric", values);
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
  if (!parts.length) return h("p", { class: "empty" }, "No training curves are available. They come from the runs folder: emobench leaderboard site OUT --runs DIR.");
  return controlled((set) => {
    if (!parts.includes(view.part)) view.part = ["mle", "validation mle"].find((part) => parts.includes(part)) ?? parts[0];
    const known = lines.filter((line) => line.parts[view.part]);
    const points = known.flatMap(({ name, parts: { [view.part]: { mean, seeds } } }) =>
      Object.entries({ ...seeds, mean }).flatMap(([seed, curve]) => curve.steps.map((step, i) => ({ name, seed, step, value: curve.values[i] }))),
    );
    const steps = unique(points.map((point) => point.step)).length;
    const values = { rows: points, title: view.part, point: steps < 20 && { size: 50 }, ...series(known.map((line) => line.name), known.map((line) => line.objective)) };
    return [
      h("div", { class: "controls" }, select("Curve", same(parts), view.part, set("part"))),
      chart("Training curves", "curves", steps > 1 ? values : oneStep(points)),
      h("p", { class: "note" }, "Thick lines are means over the seeds, thin lines the seeds themselves."),
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
    const spread = (axis) => new Set(rows.map((row) => row.entry.sizes[axis]?.[0]).filter(Boolean)).size;
    if (spread(view.axis) < 2) view.axis = Object.keys(axes).find((axis) => spread(axis) > 1) ?? view.axis;
    const known = rows.filter((row) => measured(row, place) && row.entry.sizes[view.axis] && !row.entry.untrained);
    const alike = known.filter((row) => row.group.protocols[task] === known[0].group.protocols[task]);
    const own = alike.slice(0, 500);
    const naming = (row) => (unique(own.map((one) => one.label)).length > 12 ? row.entry.name : row.label);
    const points = own.map((row) => ({ ...row.cells[place], name: naming(row), x: row.entry.sizes[view.axis][0], shown: row.entry.sizes[view.axis][1], model: row.entry.model }));
    const few = known.length ? `All of these rows have the same number of ${axes[view.axis]}: a curve needs two.` : `No row here says its number of ${axes[view.axis]}.`;
    const values = { rows: points, x: axes[view.axis], y: title, line_opacity: own.length < 100 ? 1 : 0, ...seriesOf(own, naming) };
    const notes = [
      alike.length > own.length && `${own.length} of ${alike.length} rows are drawn; choose fewer above.`,
      known.length > alike.length && `${known.length - alike.length} rows with other protocols of ${task} are left out.`,
    ];
    return section(
      "Scaling",
      "One metric against the size of the model or of the training, with 95 % intervals.",
      [metrics.length > 1 && select("Metric", metrics.map((metric, i) => [i, metric.title]), place, set("scaled")), select("Against", Object.entries(axes), view.axis, set("axis"))],
      chart("Scaling", "scaling", unique(points.map((point) => point.x)).length > 1 ? values : few),
      h("p", { class: "note" }, notes.filter(Boolean).join(" ")),
    );
  });
}
