// Every row against a baseline of its own group: models or metrics by objectives.

const MOST_ROWS = 40;
const MOST_COLUMNS = 14;
const BEYOND_NOISE = ["better", "worse"];

function differences(rows, shown) {
  const suite = board.suites[state.suite];
  return controlled((set) => {
    const names = [...new Set([suite.baseline, ...suiteGroups().flatMap((group) => group.labels)].filter(Boolean))];
    if (!names.includes(view.baseline)) view.baseline = names[0];
    const every = shown.map((group) => [`g${group.number}`, `every metric of ${group.title}`]);
    const options = [...(shown.length > 1 ? metricOptions(suite) : []), ...every.slice(0, 200)];
    if (!options.some(([value]) => String(value) === view.metric)) view.metric = String(options[0][0]);
    const controls = [
      options.length > 1 && select("Rows", options, view.metric, set("metric")),
      select(
        "Baseline",
        names.map((name) => [name, name]),
        view.baseline,
        set("baseline"),
      ),
    ];
    const map = heatMap(rows, shown);
    const text =
      "Each cell is a row's mean minus the baseline's (of perplexities the relative change), and whether noise explains it.";
    return section(
      "Differences from the baseline",
      text,
      controls,
      chart("Differences from the baseline", (width) =>
        map.cells.length ? heatMapSpec({ ...map, width }) : "No row here has the baseline in its group.",
      ),
      map.note && h("p", { class: "note" }, map.note),
    );
  });
}

/** The place of the baseline in a group, or -1: of several settings of the suite's baseline, the first. */
function basePlace(group) {
  const place = group.labels.indexOf(view.baseline);
  return place < 0 && view.baseline === board.suites[group.suite].baseline ? (group.baseline ?? -1) : place;
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
  for (const { group, place } of [
    ...(bases.length ? groups.map((group) => ({ group, place: basePlace(group) })) : []),
    ...own,
  ]) {
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
      const row = every
        ? [suite.metrics[number].name, suite.metrics[number].head].filter(Boolean).join("\n")
        : group.title;
      const found = heatRow(group, number, base, !every, (place) => shownPlace(group, place));
      if (found.every((item) => item.place === base)) continue;
      names.push(row);
      untested += found.filter((item) => item.word === "not tested").length;
      const most = Math.max(...found.map((item) => Math.abs(item.gain))) || 1;
      // Each metric has its own unit: its largest difference gets the full colour. Of the square root, so that small
      // differences beside a large one still show.
      // Only what is beyond noise has one: a colour would claim what noise explains, or what nobody knows.
      const colour = ({ gain, word }) =>
        BEYOND_NOISE.includes(word) ? Math.sign(gain) * Math.sqrt(Math.abs(gain) / (every ? most : 1)) : 0;
      cells.push(...found.map((item) => ({ ...item, row, column: column(group, item.place), colour: colour(item) })));
    }
  }
  const kept = columns.slice(0, MOST_COLUMNS);
  const limit = every ? 1 : Math.max(...cells.map((item) => Math.abs(item.colour)), 0) || 1;
  const directed = every || suite.metrics[metrics[0]].better !== null;
  const tooltip = tips(
    ["column", "objective"],
    ["row", every ? "metric" : "model"],
    ["text", "difference"],
    ["interval", "95 % interval"],
    ["p", "p"],
    ["family", "within"],
    ["detectable", "detectable"],
    ["word", "verdict"],
    ["why", "because"],
  );
  const notes = [
    groups.length > names.length &&
      !every &&
      `${names.length} of ${groups.length} groups are shown: those that have the baseline, at most ${MOST_ROWS}.`,
    columns.length > kept.length && `${kept.length} of ${columns.length} objectives are shown; choose fewer above.`,
    byName && "Of several settings of an objective the first is shown.",
    every && "Colours are scaled row by row.",
    untested > 0 && "What is not tested here, emobench compare A B tests.",
  ];
  return {
    cells: cells.filter((item) => kept.includes(item.column)),
    rows: names,
    columns: kept,
    limit,
    ends: directed ? ["worse", "better"] : ["lower", "higher"],
    tooltip,
    note: notes.filter(Boolean).join(" "),
  };
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
      cells.push({ place, gain: 0, text: plain(from[0] * scale(metric), decimals), word: "baseline", ...about(null) });
      return;
    }
    const test = testOf(group, base, place, number);
    // As in every comparison, perplexities differ by their logarithms.
    const facts = test || { log_scale: metric.unit === "perplexity" };
    const plainly = facts.log_scale ? Math.log(value(place)[0] / from[0]) : value(place)[0] - from[0];
    const difference = test && test.effect !== null ? test.effect : plainly;
    const gain = difference * (facts.log_scale ? 100 : scale(metric)) * side;
    cells.push({
      place,
      gain,
      text: effect(difference, facts, metric, decimals),
      word: word(test),
      ...about(test, metric, decimals),
    });
  });
  return cells;
}

/** What a test says beside its effect, as text. */
function about(test, metric, decimals) {
  if (!test) return { interval: ABSENT, p: ABSENT, family: ABSENT, detectable: ABSENT, why: ABSENT };
  const both = [test.low, test.high].map((end) => effect(end, test, metric, decimals));
  return {
    interval: test.low === null ? ABSENT : both.join(" to "),
    p: pValue(test.p_holm),
    family: familyOf(test) || ABSENT,
    detectable: test.detectable === null ? ABSENT : effect(test.detectable, test, metric, decimals).replace("+", "±"),
    why: test.why || ABSENT,
  };
}
