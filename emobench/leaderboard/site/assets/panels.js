// Metrics of one group as bars, its trainings as curves, and how metrics scale with models and training.

const MOST_POINTS = 500;
const MOST_SERIES = 12;
const MOST_BARS = 24;

/** What is shown of one group, which either section's control changes for both. */
function groupPanels(rows, shown) {
  return controlled((set) => h("div", {}, tasks(rows, shown, set), trainings(rows, shown, set)));
}

/** A control that chooses one group of those shown. */
function groupControl(shown, set) {
  if (!shown.some((group) => group.number === view.group)) view.group = shown[0].number;
  return (
    shown.length > 1 &&
    select(
      "Group",
      shown.map((group) => [group.number, group.title]),
      view.group,
      set("group", Number),
    )
  );
}

function barRow(entry, name, number, metric, decimals) {
  const [mean, std, low, high] = entry.values[number];
  const size = scale(metric);
  const sized = (value) => (value === null ? null : value * size);
  const text = plain(mean * size, decimals);
  return {
    name,
    mean: mean * size,
    low: sized(low),
    high: sized(high),
    end: Math.max(mean, high ?? mean) * size,
    text,
    interval: interval(low, high, metric, decimals),
  };
}

/** Panels of bars: one for each metric, one bar for each of the rows {group, place, entry}. */
function panelsOf(rows, names) {
  const suite = board.suites[rows[0].group.suite];
  return suite.metrics
    .map((metric, number) => ({
      title: metricTitle(metric),
      fraction: metric.unit === "fraction",
      rows: rows
        .filter((row) => row.entry.values[number])
        .map((row) => barRow(row.entry, names(row), number, metric, row.group.decimals[number])),
    }))
    .filter((panel) => panel.rows.length);
}

function tasks(rows, shown, set) {
  const control = groupControl(shown, set);
  const all = rows.filter((row) => row.group.number === view.group);
  const own = all.slice(0, MOST_BARS);
  const left = all.length > own.length ? ` ${own.length} of ${all.length} rows are drawn; choose fewer above.` : "";
  const name = (row) => label(row.group, row.place);
  const panels = panelsOf(own, name);
  const text = `${own[0].group.title}: every metric with its 95 % interval. Bars begin at 0.${left}`;
  return section(
    "Metrics by task",
    text,
    [control],
    chart("Metrics by task", (width) =>
      panels.length ? barsSpec({ panels, names: own.map(name), width }) : "No metric was measured.",
    ),
  );
}

/** The points of curves.  `chosen` are {name, curves}; means alone where `seeds` is false. */
function curvePoints(chosen, part, seeds = true) {
  const points = [];
  const add = (name, seed, curve) =>
    curve.steps.forEach((step, i) => points.push({ name, seed, step, value: curve.values[i] }));
  for (const { name, curves } of chosen) {
    for (const training of curves) {
      const found = training.parts[part];
      if (!found) continue;
      add(training.training > 1 ? `${name}, training ${training.training}` : name, "mean", found.mean);
      if (seeds)
        for (const [seed, curve] of Object.entries(found.seeds))
          add(training.training > 1 ? `${name}, training ${training.training}` : name, seed, curve);
    }
  }
  return points;
}

const partsOf = (chosen) => [
  ...new Set(chosen.flatMap(({ curves }) => curves.flatMap((training) => Object.keys(training.parts)))),
];

/** A chart of trainings with a control for what is drawn; `chosen` are {name, curves}. */
function curvesBody(chosen, host) {
  const parts = partsOf(chosen);
  if (!parts.length) {
    host.replaceChildren(
      h(
        "p",
        { class: "empty" },
        "No training curves are at hand. They come from the runs folder: emobench leaderboard site OUT --runs DIR.",
      ),
    );
    return;
  }
  if (!parts.includes(view.part))
    view.part = ["mle", "validation mle"].find((part) => parts.includes(part)) || parts[0];
  const names = [...new Set(curvePoints(chosen, view.part, false).map((point) => point.name))];
  const control = select(
    "Curve",
    parts.map((part) => [part, part]),
    view.part,
    (value) => {
      view.part = value;
      curvesBody(chosen, host);
      host.querySelector("select").focus();
    },
  );
  const body = chart("Training curves", (width) => {
    const points = curvePoints(chosen, view.part);
    return new Set(points.map(({ step }) => step)).size > 1
      ? curvesSpec({ points, names, title: view.part, width })
      : oneStep(points, view.part);
  });
  host.replaceChildren(
    h("div", { class: "controls" }, control),
    body,
    h("p", { class: "note" }, "Thick lines are means over the seeds, thin lines the seeds themselves."),
  );
}

/** A sentence in place of curves of a single step, which have no line. */
function oneStep(points, part) {
  const means = points.filter(({ seed, value }) => seed === "mean" && value !== null);
  if (!means.length) return `No finite value of ${part} was logged.`;
  const values = means.map(({ name, value }) => `${name} ${value}`).join(", ");
  return `One step was logged (${means[0].step}), which makes no curve; ${part}: ${values}.`;
}

function trainings(rows, shown, set) {
  const control = groupControl(shown, set);
  const own = rows.filter((row) => row.group.number === view.group && !row.entry.untrained).slice(0, 12);
  const host = h("div", {}, h("p", { class: "empty" }, "Reading the curves …"));
  Promise.all(
    own.map(async (row) => ({ name: label(row.group, row.place), curves: (await details(row.entry)).curves })),
  ).then((chosen) => curvesBody(chosen, host));
  return section(
    "Training curves",
    `What ${own[0]?.group.title ?? "the group"}'s trainings logged, over the optimizer's steps.`,
    [control],
    host,
  );
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
    const points = own.map((row) => ({
      ...barRow(row.entry, naming(row), number, metric, row.group.decimals[number]),
      x: row.entry[view.axis],
      shown: large(row.entry[view.axis]),
      model: row.entry.model,
    }));
    const several = new Set(points.map((point) => point.x)).size > 1;
    const few = known.length
      ? `All of these rows have the same number of ${axes[view.axis]}: a curve needs two.`
      : `No row here says its number of ${axes[view.axis]}.`;
    const draw = (width) =>
      several
        ? scalingSpec({
            points,
            names: [...new Set(own.map(naming))],
            joined: own.length < 100,
            x: axes[view.axis],
            y: metricTitle(metric),
            width,
          })
        : few;
    const notes = [
      alike.length > own.length && `${own.length} of ${alike.length} rows are drawn; choose fewer above.`,
      known.length > alike.length &&
        `${known.length - alike.length} rows with other protocols of ${task} are left out.`,
    ];
    return section(
      "Scaling",
      "One metric against the size of the model or of the training, with 95 % intervals.",
      controls,
      chart("Scaling", draw),
      h("p", { class: "note" }, notes.filter(Boolean).join(" ")),
    );
  });
}
