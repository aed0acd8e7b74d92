// The page of one entry: everything that it holds.

async function drawEntry(id) {
  const host = byId("view-entry");
  const entry = entryOf(id);
  if (!entry) {
    fill(
      host,
      backLink(),
      h("h1", {}, "No such entry"),
      h("p", { class: "empty" }, `This board has no entry ${id}. It may have been superseded.`),
    );
    return;
  }
  const found = await details(entry);
  const full = found.entry;
  const group = entry.groups[0];
  fill(
    host,
    backLink(),
    h("h1", {}, full.objective.name, h("small", {}, ` on ${full.model.name}`)),
    h(
      "p",
      { class: "lead" },
      [
        `${full.suite.name} v${full.suite.version}`,
        full.kind,
        seedsText(full),
        full.provenance.created.slice(0, 10),
      ].join(" · "),
    ),
    full.source.cite && h("p", { class: "about" }, `Taken from ${full.source.cite}`),
    full.source.command && h("p", { class: "about" }, "Made by ", h("code", {}, full.source.command)),
    h("div", { class: "actions" }, compareControl(entry)),
    section("Metrics", "Means over the seeds, with the values of each.", [], metricsTable(full, group)),
    noiseSection(full, group),
    h(
      "div",
      {},
      entry.groups.map((own) => rivals(own, own.entries.indexOf(entry.number))),
    ),
    curvesSection([{ name: label(group, group.entries.indexOf(entry.number)), curves: found.curves }], full),
    samplesSection(found),
    found.problems.length
      ? section(
          "Files",
          "Some files of this entry could not be used.",
          [],
          h(
            "ul",
            {},
            found.problems.map((text) => h("li", {}, text)),
          ),
        )
      : "",
    section(
      "Everything in the entry",
      "The entry as it is on disk. Fractions are stored here as they are.",
      [],
      everything(full),
    ),
  );
}

const backLink = () => h("p", { class: "back" }, h("a", { href: boardAddress() }, "← All entries"));
const seedsText = (full) =>
  full.seeds.length ? `${full.seeds.length} ${full.seeds.length === 1 ? "seed" : "seeds"}` : "no seeds";

function metricsTable(full, group) {
  const suite = board.suites[group.suite];
  const rows = suite.metrics
    .map((metric, number) => [metric, number, full.metrics[metric.key]])
    .filter(([metric, , value]) => value || full.missing[metric.key])
    .map(([metric, number, value]) => {
      const name = metricTitle(metric);
      if (!value)
        return [name, h("td", { colspan: "6", class: "reason" }, `not measured: ${full.missing[metric.key]}`)];
      const decimals = group.decimals[number];
      const of = value.ci95 ? value.ci95_of : value.ci95_missing || "none";
      const number_ = (text) => h("td", { class: "number" }, text);
      return [
        name,
        number_(plain(value.mean * scale(metric), decimals)),
        number_(value.std === null ? ABSENT : plain(value.std * scale(metric), decimals)),
        number_(value.ci95 ? interval(...value.ci95, metric, decimals) : ABSENT),
        h("td", {}, [of, ...value.flags.map(remark)].join("; ")),
        number_(value.n === null ? ABSENT : whole(value.n)),
        h(
          "td",
          { class: "number values" },
          value.values.map((item) => plain(item * scale(metric), decimals)).join("  "),
        ),
      ];
    });
  return table(
    [
      "Metric",
      "Mean",
      "Std",
      "95 % interval",
      "It covers",
      "n",
      full.seeds.length ? `Seeds ${full.seeds.join(", ")}` : "Values",
    ],
    rows,
    "Metrics",
  );
}

const SOURCES = ["training seed", "sampling", "k-means", "texts"];

function standardError(values) {
  if (values.length < 2) return 0;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1) / values.length);
}

/** Where the noise of repeated metrics comes from, by source. */
function noiseSection(full, group) {
  const rows = board.suites[group.suite].metrics
    .map((metric) => [metric, Object.entries(full.metrics[metric.key]?.components ?? {})])
    .filter(([, parts]) => parts.length)
    .map(([metric, parts]) => {
      const { mean, values } = full.metrics[metric.key];
      const part = Object.fromEntries(parts);
      const over = SOURCES.slice(0, 3).filter((name) => part[name]);
      // Components are not all of the noise: the spread over seeds may show more.
      const shown = standardError(metric.unit === "perplexity" ? values.map(Math.log) : values);
      const left = Math.max(shown, Math.hypot(...parts.map(([, { sd_of_mean }]) => sd_of_mean)));
      const cells = [
        ...SOURCES.map((name) => (part[name] ? deviation(part[name].sd, metric, mean) : ABSENT)),
        over.map((name) => part[name].draws).join(" × "),
        deviation(left, metric, mean),
      ];
      return [metricTitle(metric), ...cells.map((text) => h("td", { class: "number" }, text))];
    });
  if (!rows.length) return "";
  const text =
    "The standard deviation that one value would have if only this source were drawn anew (of perplexities in percent), and what is left in the mean over seeds, sampling runs and k-means seeds: its standard error. The texts are the same for all.";
  const heads = ["Metric", "Training seed", "Sampling", "k-means", "Texts", "Averaged over", "Left in the mean"];
  return section("Where the noise comes from", text, [], table(heads, rows, "Where the noise comes from"));
}

/** A standard deviation with 2 digits; of perplexities, whose logarithms have it, in percent. A millionth of the mean is
 * float rounding, and none (`entry.py`: ROUNDING). */
function deviation(value, metric, mean) {
  if (value <= 1e-6 * (metric.unit === "perplexity" ? 1 : Math.abs(mean))) return "0";
  const shown = metric.unit === "perplexity" ? 100 * Math.expm1(value) : value * scale(metric);
  return `${Number(shown.toPrecision(2))}${metric.unit === "perplexity" ? " %" : ""}`;
}

/** The tests of an entry against each other one of its group. */
function rivals(group, place) {
  const others = group.entries.map((_, i) => i).filter((i) => i !== place);
  if (!others.length) return "";
  const metrics = board.suites[group.suite].metrics;
  const rows = others.slice(0, 50).map((other) => {
    const id = board.entries[group.entries[other]].id;
    const mine = board.entries[group.entries[place]].id;
    const cells = metrics.map((metric, number) => {
      const test = testOf(group, other, place, number);
      if (!test) return h("td", { class: "number" }, ABSENT);
      return h(
        "td",
        { class: "number" },
        effect(test.effect, test, metric, group.decimals[number]),
        h("span", { class: `word ${test.verdict ?? "none"}` }, word(test)),
      );
    });
    return [h("a", { href: `#/compare/${id}/${mine}` }, label(group, other)), ...cells];
  });
  const heads = ["Against", ...metrics.map((metric) => metricTitle(metric))];
  return section(
    `Against ${group.title}'s other rows`,
    "This entry minus the other (of perplexities the relative change). Open one for intervals and p-values.",
    [],
    table(heads, rows, "Comparisons"),
  );
}

function curvesSection(chosen, full) {
  if (!full.runs.length || !full.seeds.length) return "";
  const host = h("div");
  curvesBody(chosen, host);
  return section("Training curves", "What the trainings logged, over the optimizer's steps.", [], host);
}

function samplesSection(found) {
  if (!found.samples.length) return "";
  const one = (text) => [
    text.prompt !== undefined && h("p", { class: "prompt" }, h("b", {}, "Prompt"), h("span", {}, text.prompt)),
    h(
      "p",
      { class: "text" },
      h("b", {}, "Continuation"),
      h("span", {}, text.continuation),
    ),
    text.reference !== undefined &&
      h("p", { class: "reference" }, h("b", {}, "Reference"), h("span", {}, text.reference)),
  ];
  const files = found.samples.map((file) =>
    h(
      "details",
      { class: "samples", open: true },
      h("summary", {}, `${file.task}${file.seed === null ? "" : `, seed ${file.seed}`}`),
      h(
        "ol",
        {},
        file.texts.map((text) => h("li", {}, one(text))),
      ),
    ),
  );
  return section("Samples", "The first texts that the model generated, not chosen by anyone.", [], files);
}

function everything(full) {
  const open = ["objective", "model", "seeds", "suite", "id", "kind"];
  return h(
    "div",
    { class: "json" },
    Object.entries(full).map(([name, value]) => tree(name, value, open.includes(name))),
  );
}

function compareControl(entry) {
  const others = entry.groups.flatMap((group) =>
    group.entries.map((number, place) => [group, place, board.entries[number]]),
  );
  const options = others
    .filter(([, , other]) => other !== entry)
    .map(([group, place, other]) => [other.id, `${label(group, place)} · ${group.title}`]);
  if (!options.length) return "";
  return select("Compare with", [["", "choose an entry"], ...options], "", (id) => {
    if (id) location.hash = `#/compare/${id}/${entry.id}`;
  });
}
