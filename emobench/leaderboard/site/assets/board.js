// The board's charts: differences from a baseline, metrics of one group, its trainings, and how metrics scale.

const view = { metric: "", baseline: "", group: 0, part: "", axis: "parameters", scaled: "" };
const MOST_ROWS = 40;
const MOST_COLUMNS = 14;
const MOST_POINTS = 500;
const MOST_SERIES = 12;
const MOST_BARS = 24;

function drawBoard() {
  const rows = visible();
  drawTable(rows);
  const shown = [...new Set(rows.map((row) => row.group))];
  byId("charts").replaceChildren(...(shown.length ? [differences(rows, shown), tasks(rows, shown), trainings(rows, shown), scaling(rows)] : []));
  redraw();
}

function section(title, text, controls, ...body) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), h("p", { class: "about" }, text), controls.some(Boolean) && h("div", { class: "controls" }, controls), body);
}

/** A section whose controls change `view` and draw it again in its place. */
function controlled(make) {
  const host = h("div");
  const again = () => {
    const focus = [...host.querySelectorAll("select")].indexOf(document.activeElement);
    host.replaceChildren(make(set));
    host.querySelectorAll("select")[focus]?.focus();
  };
  const set = (name, convert = String) => (value) => {
    view[name] = convert(value);
    again();
  };
  host.replaceChildren(make(set));
  return host;
}

const metricOptions = (suite) => suite.metrics.map((metric, i) => [i, metricTitle(metric)]);
const labelsOf = (rows) => [...new Set(rows.map((row) => label(row.group, row.place)))];

function differences(rows, shown) {
  const suite = board.suites[state.suite];
  return controlled((set) => {
    const names = [...new Set([suite.baseline, ...suiteGroups().flatMap((group) => group.labels)].filter(Boolean))];
    if (!names.includes(view.baseline)) view.baseline = names[0];
    const every = shown.map((group) => [`g${group.number}`, `every metric of ${group.title}`]);
    const options = [...(shown.length > 1 ? metricOptions(suite) : []), ...every.slice(0, 200)];
    if (!options.some(([value]) => String(value) === view.metric)) view.metric = String(options[0][0]);
    const controls = [options.length > 1 && select("Rows", options, view.metric, set("metric")), select("Baseline", names.map((name) => [name, name]), view.baseline, set("baseline"))];
    const map = heatMap(rows, shown);
    const text = "Each cell is a row's mean minus the baseline's (of perplexities the relative change), and whether noise explains it.";
    return section("Differences from the baseline", text, controls, chart("Differences from the baseline", (width) => (map.cells.length ? heatMapSpec({ ...map, width }) : "No row here has the baseline in its group.")), map.note && h("p", { class: "note" }, map.note));
  });
}

/** The place of the baseline in a group, or -1: of several settings of the suite's baseline, the first. */
function basePlace(group) {
  const place = group.labels.indexOf(view.baseline);
  return place < 0 && view.baseline === board.suites[group.suite].baseline ? group.baseline ?? -1 : place;
}

function heatMap(rows, shown) {
  const suite = board.suites[state.suite];
  const every = view.metric.startsWith("g");
  const groups = every ? [board.groups[Number(view.metric.slice(1))]] : shown;
  const metrics = every ? suite.metrics.map((_, i) => i) : [Number(view.metric)];
  const own = rows.filter((row) => groups.includes(row.group));
  const byName = labelsOf(own).length > MOST_COLUMNS;
  const column = (group, place) => (byName ? board.entries[group.entries[place]].name : label(group, place));
  const bases = groups.filter((group) => basePlace(group) >= 0).map((group) => column(group, basePlace(group)));
  const columns = [...new Set([...bases, ...own.map((row) => column(row.group, row.place))])];
  const cellOf = new Map();
  for (const { group, place } of [...bases.length ? groups.map((group) => ({ group, place: basePlace(group) })) : [], ...own]) {
    const key = `${group.number}/${place < 0 ? "" : column(group, place)}`;
    if (!cellOf.has(key)) cellOf.set(key, place);
  }
  const shownPlace = (group, place) => cellOf.get(`${group.number}/${column(group, place)}`) === place;
  const cells = [];
  const names = [];
  let untested = 0;
  for (const group of groups) {
    const base = basePlace(group);
    if (base < 0 || names.length >= MOST_ROWS) continue;
    for (const number of metrics) {
      const row = every ? [suite.metrics[number].name, suite.metrics[number].head].filter(Boolean).join("\n") : group.title;
      const found = heatRow(group, number, base, !every, (place) => shownPlace(group, place));
      if (found.every((item) => item.place === base)) continue;
      names.push(row);
      untested += found.filter((item) => item.word === "not tested").length;
      const most = Math.max(...found.map((item) => Math.abs(item.gain))) || 1;
      // Each metric has its own unit: its largest difference gets the full colour. Of the square root, so that small
      // differences beside a large one still show.
      const colour = (gain) => Math.sign(gain) * Math.sqrt(Math.abs(gain) / (every ? most : 1));
      cells.push(...found.map((item) => ({ ...item, row, column: column(group, item.place), colour: colour(item.gain) })));
    }
  }
  const kept = columns.slice(0, MOST_COLUMNS);
  const limit = every ? 1 : Math.max(...cells.map((item) => Math.abs(item.colour)), 0) || 1;
  const directed = every || suite.metrics[metrics[0]].better !== null;
  const tooltip = tips(["column", "objective"], ["row", every ? "metric" : "model"], ["text", "difference"], ["interval", "95 % interval"], ["p", "p (Holm over tasks)"], ["detectable", "smallest detectable"], ["word", "verdict"], ["why", "because"]);
  const notes = [
    groups.length > names.length && !every && `${names.length} of ${groups.length} groups are shown: those that have the baseline, at most ${MOST_ROWS}.`,
    columns.length > kept.length && `${kept.length} of ${columns.length} objectives are shown; choose fewer above.`,
    byName && "Of several settings of an objective the first is shown.",
    every && "Colours are scaled row by row.",
    untested > 0 && "What is not tested here, emobench compare A B tests.",
  ];
  return { cells: cells.filter((item) => kept.includes(item.column)), rows: names, columns: kept, limit, ends: directed ? ["worse", "better"] : ["lower", "higher"], tooltip, note: notes.filter(Boolean).join(" ") };
}

function heatRow(group, number, base, alone, wanted) {
  const metric = board.suites[group.suite].metrics[number];
  const decimals = group.decimals[number];
  const value = (place) => board.entries[group.entries[place]].values[number];
  // A metric without a better side has no good or bad colour beside others; alone it has its own ends.
  const side = { true: 1, false: -1, null: alone ? 1 : 0 }[metric.better];
  const from = value(base);
  if (!from) return [];
  const cells = [];
  group.entries.forEach((_, place) => {
    if (!wanted(place) || !value(place)) return;
    if (place === base) {
      cells.push({ place, gain: 0, text: plain(from[0] * scale(metric), decimals), word: "baseline" });
      return;
    }
    const test = testOf(group, base, place, number);
    // As in every comparison, perplexities differ by their logarithms.
    const facts = test || { log_scale: metric.unit === "perplexity" };
    const plainly = facts.log_scale ? Math.log(value(place)[0] / from[0]) : value(place)[0] - from[0];
    const difference = test && test.effect !== null ? test.effect : plainly;
    const gain = difference * (facts.log_scale ? 100 : scale(metric)) * side;
    cells.push({ place, gain, text: effect(difference, facts, metric, decimals), word: word(test), ...about(test, metric, decimals) });
  });
  return cells;
}

/** What a test says beside its effect, as text. */
function about(test, metric, decimals) {
  if (!test) return { interval: ABSENT, p: ABSENT, detectable: ABSENT, why: "" };
  const both = [test.low, test.high].map((end) => effect(end, test, metric, decimals));
  return {
    interval: test.low === null ? ABSENT : both.join(" to "),
    p: pValue(test.p_holm ?? test.p),
    detectable: test.detectable === null ? ABSENT : effect(test.detectable, test, metric, decimals).replace("+", "±"),
    why: test.why || "",
  };
}

/** A control that chooses one group of those shown. */
function groupControl(shown, set) {
  if (!shown.some((group) => group.number === view.group)) view.group = shown[0].number;
  return shown.length > 1 && select("Group", shown.map((group) => [group.number, group.title]), view.group, set("group", Number));
}

function barRow(entry, name, number, metric, decimals) {
  const [mean, std, low, high] = entry.values[number];
  const size = scale(metric);
  const sized = (value) => (value === null ? null : value * size);
  const text = plain(mean * size, decimals);
  return { name, mean: mean * size, low: sized(low), high: sized(high), end: Math.max(mean, high ?? mean) * size, text, interval: interval(low, high, metric, decimals) };
}

/** Panels of bars: one for each metric, one bar for each of the rows {group, place, entry}. */
function panelsOf(rows, names) {
  const suite = board.suites[rows[0].group.suite];
  return suite.metrics
    .map((metric, number) => ({
      title: metricTitle(metric),
      fraction: metric.unit === "fraction",
      rows: rows.filter((row) => row.entry.values[number]).map((row) => barRow(row.entry, names(row), number, metric, row.group.decimals[number])),
    }))
    .filter((panel) => panel.rows.length);
}

function tasks(rows, shown) {
  return controlled((set) => {
    const control = groupControl(shown, set);
    const all = rows.filter((row) => row.group.number === view.group);
    const own = all.slice(0, MOST_BARS);
    const left = all.length > own.length ? ` ${own.length} of ${all.length} rows are drawn; choose fewer above.` : "";
    const name = (row) => label(row.group, row.place);
    const panels = panelsOf(own, name);
    const text = `${own[0].group.title}: every metric with its 95 % interval. Bars begin at 0.${left}`;
    return section("Metrics by task", text, [control], chart("Metrics by task", (width) => (panels.length ? barsSpec({ panels, names: own.map(name), width }) : "No metric was measured.")));
  });
}

/** The points of curves.  `chosen` are {name, curves}; means alone where `seeds` is false. */
function curvePoints(chosen, part, seeds = true) {
  const points = [];
  const add = (name, seed, curve) => curve.steps.forEach((step, i) => points.push({ name, seed, step, value: curve.values[i] }));
  for (const { name, curves } of chosen) {
    for (const training of curves) {
      const found = training.parts[part];
      if (!found) continue;
      add(training.training > 1 ? `${name}, training ${training.training}` : name, "mean", found.mean);
      if (seeds) for (const [seed, curve] of Object.entries(found.seeds)) add(training.training > 1 ? `${name}, training ${training.training}` : name, seed, curve);
    }
  }
  return points;
}

const partsOf = (chosen) => [...new Set(chosen.flatMap(({ curves }) => curves.flatMap((training) => Object.keys(training.parts))))];

/** A chart of trainings with a control for what is drawn; `chosen` are {name, curves}. */
function curvesBody(chosen, host) {
  const parts = partsOf(chosen);
  if (!parts.length) {
    host.replaceChildren(h("p", { class: "empty" }, "No training curves are at hand. They come from the runs folder: emobench leaderboard site OUT --runs DIR."));
    return;
  }
  if (!parts.includes(view.part)) view.part = ["mle", "validation mle"].find((part) => parts.includes(part)) || parts[0];
  const names = [...new Set(curvePoints(chosen, view.part, false).map((point) => point.name))];
  const control = select("Curve", parts.map((part) => [part, part]), view.part, (value) => {
    view.part = value;
    curvesBody(chosen, host);
    host.querySelector("select").focus();
  });
  const body = chart("Training curves", (width) => curvesSpec({ points: curvePoints(chosen, view.part), names, title: view.part, width }));
  host.replaceChildren(h("div", { class: "controls" }, control), body, h("p", { class: "note" }, "Thick lines are means over the seeds, thin lines the seeds themselves."));
}

function trainings(rows, shown) {
  return controlled((set) => {
    const control = groupControl(shown, set);
    const own = rows.filter((row) => row.group.number === view.group && !row.entry.untrained).slice(0, 12);
    const host = h("div", {}, h("p", { class: "empty" }, "Reading the curves …"));
    Promise.all(own.map(async (row) => ({ name: label(row.group, row.place), curves: (await details(row.entry)).curves }))).then((chosen) => curvesBody(chosen, host));
    return section("Training curves", `What ${own[0]?.group.title ?? "the group"}'s trainings logged, over the optimizer's steps.`, [control], host);
  });
}

function scaling(rows) {
  const suite = board.suites[state.suite];
  return controlled((set) => {
    if (!suite.metrics[view.scaled]) view.scaled = "0";
    const number = Number(view.scaled);
    const metric = suite.metrics[number];
    const axes = { parameters: "model parameters", tokens: "training tokens of a run" };
    const spread = (axis) => new Set(rows.map((row) => row.entry[axis]).filter(Boolean)).size;
    if (spread(view.axis) < 2) view.axis = Object.keys(axes).find((axis) => spread(axis) > 1) || view.axis;
    const controls = [
      suite.metrics.length > 1 && select("Metric", metricOptions(suite), view.scaled, set("scaled")),
      select("Against", Object.entries(axes), view.axis, set("axis")),
    ];
    const task = metric.key.split("/")[0];
    const known = rows.filter((row) => row.entry.values[number] && row.entry[view.axis] && !row.entry.untrained);
    const protocol = known[0]?.group.protocols[task];
    const alike = known.filter((row) => row.group.protocols[task] === protocol);
    const own = alike.slice(0, MOST_POINTS);
    const naming = labelsOf(own).length > MOST_SERIES ? (row) => row.entry.name : (row) => label(row.group, row.place);
    const points = own.map((row) => ({ ...barRow(row.entry, naming(row), number, metric, row.group.decimals[number]), x: row.entry[view.axis], shown: large(row.entry[view.axis]), model: row.entry.model }));
    const several = new Set(points.map((point) => point.x)).size > 1;
    const few = known.length ? `All of these rows have the same number of ${axes[view.axis]}: a curve needs two.` : `No row here says its number of ${axes[view.axis]}.`;
    const draw = (width) => (several ? scalingSpec({ points, names: [...new Set(own.map(naming))], joined: own.length < 100, x: axes[view.axis], y: metricTitle(metric), width }) : few);
    const notes = [
      alike.length > own.length && `${own.length} of ${alike.length} rows are drawn; choose fewer above.`,
      known.length > alike.length && `${known.length - alike.length} rows with other protocols of ${task} are left out.`,
    ];
    return section("Scaling", "One metric against the size of the model or of the training, with 95 % intervals.", controls, chart("Scaling", draw), h("p", { class: "note" }, notes.filter(Boolean).join(" ")));
  });
}
