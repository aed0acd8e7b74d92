// Two to six entries side by side, the first as the baseline: tests where they are comparable, else what keeps them apart.

async function drawCompare(host, ...ids) {
  const entries = unique(ids).map(entryOf);
  if (entries.includes(undefined) || entries.length < 2 || entries.length > MOST_CHOSEN) return notHere(host, "Nothing to compare", `Give two to ${MOST_CHOSEN} entries of this board; the link names ${ids.join(" and ")}.`);
  const found = await Promise.all(entries.map(details));
  const group = commonGroup(entries);
  const rows = group && entries.map((entry) => entry.rows.find((row) => row.group === group));
  const plain = rows ? rows.map((row) => row.label) : entries.map(({ objective, rows: [row] }) => `${objective} · ${row.group.title}`);
  const names = plain.map((name, i) => (plain.indexOf(name) !== plain.lastIndexOf(name) ? `${name} [${entries[i].id.slice(0, 6)}]` : name));
  const curves = entries.map((entry, i) => ({ name: names[i], objective: entry.name, curves: found[i].curves })).filter((item) => item.curves.length);
  const unlike = (title, about, values) => section(title, about, [], table(title, ["", ...names], differing(values)));
  const begin = (place) => (location.hash = `#/compare/${[ids[place], ...ids.filter((_, i) => i !== place)].join("/")}`);
  const swap = entries.length === 2 ? h("a", { class: "button quiet", href: `#/compare/${ids[1]}/${ids[0]}` }, "Swap") : select("Baseline", names.map((name, i) => [i, name]), 0, begin);
  const apart = () => [
    h("div", { class: "warning", role: "note" }, h("p", {}, h("strong", {}, "These entries are not comparable"), ", so there is no verdict.")),
    section("Side by side", "Values as recorded.", [], sideBySide(entries, names)),
    unlike("Why they are not comparable", "Entries are comparable if all of these are equal.", found.map(({ conditions }) => conditions)),
  ];
  const tested = () => (rows.length === 2 ? verdicts(...rows, names) : manyVerdicts(rows, names));
  return fill(
    host,
    backLink(),
    entries.length === 2 ? h("h1", {}, names[1], h("small", {}, ` against ${names[0]}`)) : h("h1", {}, `${entries.length} entries`, h("small", {}, rows ? ` against ${names[0]}` : " side by side")),
    h("p", { class: "lead" }, rows ? `${group.suite.label} · ${group.title}` : "Not comparable"),
    h("div", { class: "actions" }, swap),
    rows ? tested() : apart(),
    rows && section("Metrics", "Each metric with its 95 % interval. Bars begin at 0.", [], bars(rows, (row) => names[rows.indexOf(row)])),
    curves.length > 0 && section("Training curves", "Logged over the optimizer's steps.", [], curvesBody(curves)),
    await sampleBrowser(entries, names),
    unlike("Differences between the entries", "", found.map(({ entry: { metrics, runs, id, cost, ...rest } }) => rest)),
  );
}

/** The group in which all of some entries stand. */
const commonGroup = ([first, ...others]) => first.rows.map((row) => row.group).find((group) => others.every((entry) => entry.rows.some((row) => row.group === group)));

const valueOf = (row, i) => {
  const cell = measured(row, i);
  return cell ? [cell.text, cell.spread && h("span", { class: "spread" }, ` ± ${cell.spread}`)] : [ABSENT];
};
const DIFFERENCE = "perplexities in percent";

function verdicts(base, candidate, names) {
  const { metrics } = base.group.suite;
  const tests = metrics.map((_, i) => testOf(base, candidate, i));
  const facts = (test, head, kind) => {
    const shown = test?.[{ "95 % interval": "interval", Within: "family" }[head] ?? head.toLowerCase()] ?? ABSENT;
    return h("td", { class: shown === ABSENT ? `${kind} absent` : kind, "data-head": head }, shown);
  };
  const tested = [...metrics.keys()].filter((i) => tests[i] || (!metrics[i].secondary && (measured(base, i) || measured(candidate, i))));
  const rows = tested.map((i) => {
    const [metric, test] = [metrics[i], tests[i]];
    const word = test?.word ?? "not tested";
    const why = test && test.why !== ABSENT && h("span", { class: "why" }, test.why);
    return [
      term(metric.title, metric.about),
      ...[base, candidate].map((row, side) => h("td", { class: "number", "data-head": names[side] }, ...valueOf(row, i))),
      h("td", { class: "number difference" }, test?.text ?? ABSENT),
      h("td", { class: "verdict" }, h("span", { class: `word ${word}` }, word), why),
      ...[["95 % interval", "number"], ["p", "number"], ["Within", "why"], ["Detectable", "number"], ["Test", "why"]].map(([head, kind]) => facts(test, head, kind)),
    ];
  });
  const heads = ["Metric", ...names, "Difference", "Verdict", "95 % interval", "p", "Within", "Detectable", "Test"];
  const about = `${names[1]} minus ${names[0]}; ${DIFFERENCE}. Detectable: the difference that one test finds with 80 % power. Variation between pre-trained models is not included.`;
  const command = [`Not compared here: `, h("code", {}, `emobench compare ${base.entry.id} ${candidate.entry.id}`)];
  const within = tests.flatMap((test, i) => (test?.within ?? []).map((row) => [metrics[i].title, ...row]));
  const few = "These tests compare trained models with the same seed, not objectives.";
  return [
    section("Verdicts", about, [], h("div", { class: "verdicts" }, table("Verdicts", heads, rows)), forests(tests.map((test, i) => ["", metrics[i].title, test])), !tests.some(Boolean) && h("p", { class: "note" }, command)),
    within.length > 0 && section("Within one seed", few, [], table("Within one seed", ["Metric", "Seed", "Difference", "95 % interval", "p", "Test"], within, [1, 2, 3, 4])),
  ];
}

/** A column for the baseline, and one for each candidate with its difference and verdict. */
function manyVerdicts([base, ...others], names) {
  const { metrics } = base.group.suite;
  const known = [...metrics.keys()].filter((i) => !metrics[i].secondary && [base, ...others].some((row) => measured(row, i)));
  const cell = (row, i) => {
    const test = testOf(base, row, i);
    const word = test?.word ?? "not tested";
    return h("td", { class: "number" }, ...valueOf(row, i), h("span", { class: "delta" }, test?.text ?? ABSENT), h("span", { class: `word ${word}` }, word));
  };
  const rows = known.map((i) => [term(metrics[i].title, metrics[i].about), number(...valueOf(base, i)), ...others.map((row) => cell(row, i))]);
  const link = (row, i) => h("a", { href: `#/compare/${base.entry.id}/${row.entry.id}` }, names[i + 1]);
  const about = `Under each value: its difference from ${names[0]} (${DIFFERENCE}) and the verdict. Select a name for intervals, p-values and tests.`;
  const command = `emobench compare ${base.entry.id} ${others.map((row) => row.entry.id).join(" ")}`;
  const untested = known.some((i) => others.some((row) => !testOf(base, row, i)));
  return section("Verdicts", about, [], table("Verdicts", ["Metric", names[0], ...others.map(link)], rows), untested && h("p", { class: "note" }, "Not tested here: ", h("code", {}, command)));
}

function sideBySide(entries, names) {
  const keyed = entries.map(({ rows: [row] }) => new Map(row.group.suite.metrics.map((metric, i) => [metric.title, measured(row, i) && shownValue(row.cells[i])])));
  const titles = unique(keyed.flatMap((metrics) => [...metrics].filter(([, value]) => value).map(([title]) => title)));
  return table("Side by side", ["Metric", ...names], titles.map((title) => [title, ...keyed.map((metrics) => metrics.get(title) || ABSENT)]), names.map((_, i) => i + 1));
}

/** The leaves in which some plain values are not alike, as rows of a table. */
function differing(values) {
  const flat = (value, prefix) => {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return [[prefix, Array.isArray(value) ? JSON.stringify(value) : String(value ?? "none")]];
    return Object.entries(value).flatMap(([key, item]) => flat(item, prefix ? `${prefix}.${key}` : key));
  };
  const sides = values.map((value) => new Map(flat(value, "")));
  const keys = unique(sides.flatMap((side) => [...side.keys()])).filter((key) => new Set(sides.map((side) => side.get(key))).size > 1);
  const short = (text) => text.replace(/(sha256:[0-9a-f]{12})[0-9a-f]{52}/g, "$1…");
  return keys.map((key) => [key, ...sides.map((side) => short(side.get(key) ?? "none"))]);
}
