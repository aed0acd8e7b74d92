// The view of one entry: everything that it holds.

const backLink = () => h("p", { class: "back" }, h("a", { href: lastBoard }, "← All entries"));
const notHere = (host, title, text) => fill(host, backLink(), h("h1", {}, title), h("p", { class: "empty" }, text));
const wordCell = (text, word, tag = "td") => h(tag, { class: "number" }, text, h("span", { class: `word ${word}` }, word));

async function drawEntry(host, id) {
  const entry = entryOf(id);
  if (!entry) return notHere(host, "No such entry", `This board has no entry ${id}. It may have been superseded.`);
  const found = await details(entry);
  const full = found.entry;
  const seeds = full.seeds.length ? `${full.seeds.length} ${full.seeds.length === 1 ? "seed" : "seeds"}` : "no seeds";
  const others = entry.rows.flatMap((row) => row.group.rows.filter((other) => other !== row));
  const options = others.map((row) => [row.entry.id, `${row.label} · ${row.group.title}`]);
  const compared = (other) => other && (location.hash = `#/compare/${other}/${id}`);
  const heads = ["Metric", "Mean", "Std", "95 % interval", "It covers", "n", full.seeds.length ? `Seeds ${full.seeds.join(", ")}` : "Values"];
  const metrics = found.metrics.map((row) => (row.length > 2 ? [...row.slice(0, 6), h("td", { class: "number values" }, row[6])] : [row[0], h("td", { colspan: 6, class: "reason" }, row[1])]));
  const noise = "The standard deviation that one value would have if only this source were drawn anew (of perplexities in percent), and what is left in the mean over seeds, sampling runs and k-means seeds: its standard error. The texts are the same for all.";
  const curves = full.seeds.length > 0 && full.runs.length > 0 && curvesBody([{ name: entry.rows[0].label, curves: found.curves }]);
  return fill(
    host,
    backLink(),
    h("h1", {}, full.objective.name, h("small", {}, ` on ${full.model.name}`)),
    h("p", { class: "lead" }, [`${full.suite.name} v${full.suite.version}`, full.kind, seeds, entry.created].join(" · ")),
    full.source.cite && h("p", { class: "about" }, `Taken from ${full.source.cite}`),
    full.source.command && h("p", { class: "about" }, "Made by ", h("code", {}, full.source.command)),
    options.length > 0 && h("div", { class: "actions" }, select("Compare with", [["", "choose an entry"], ...options], "", compared)),
    section("Metrics", "Means over the seeds, with the values of each.", [], table("Metrics", heads, metrics, [1, 2, 3, 5])),
    found.noise.length > 0 &&
      section("Where the noise comes from", noise, [], table("Where the noise comes from", ["Metric", "Training seed", "Sampling", "k-means", "Texts", "Averaged over", "Left in the mean"], found.noise, [1, 2, 3, 4, 5, 6])),
    entry.rows.map(rivals),
    curves && section("Training curves", "What the trainings logged, over the optimizer's steps.", [], curves),
    samples(found.samples),
    found.problems.length > 0 && section("Files", "Some files of this entry could not be used.", [], h("ul", {}, found.problems.map((text) => h("li", {}, text)))),
    section("Everything in the entry", "The entry as it is on disk. Fractions are stored here as they are.", [], h("div", { class: "json" }, Object.entries(full).map(tree))),
  );
}

/** The tests of a row against each other one of its group. */
function rivals(row) {
  const others = row.group.rows.filter((other) => other !== row).slice(0, 50);
  if (!others.length) return "";
  const metrics = row.group.suite.metrics;
  const tested = (base, i) => {
    const test = testOf(base, row, i);
    return test ? wordCell(test.text, test.word) : number(ABSENT);
  };
  const rows = others.map((base) => [h("a", { href: `#/compare/${base.entry.id}/${row.entry.id}` }, base.label), ...metrics.map((_, i) => tested(base, i))]);
  const about = "This entry minus the other (of perplexities the relative change). Open one for intervals and p-values.";
  return section(`Against ${row.group.title}'s other rows`, about, [], table("Comparisons", ["Against", ...metrics.map((metric) => metric.title)], rows));
}

function samples(files) {
  const part = (kind, name, text) => text !== undefined && h("p", { class: kind }, h("b", {}, name), h("span", {}, text));
  const one = (text) => h("li", {}, part("prompt", "Prompt", text.prompt), part("text", "Continuation", text.continuation), part("reference", "Reference", text.reference));
  const title = (file) => `${file.task}${file.seed === null ? "" : `, seed ${file.seed}`}`;
  const shown = files.map((file) => h("details", { class: "samples", open: true }, h("summary", {}, title(file)), h("ol", {}, file.texts.map(one))));
  return shown.length ? section("Samples", "The first texts that the model generated, not chosen by anyone.", [], shown) : "";
}

/** A value of JSON as a line, or as a branch that can be folded. */
function tree([name, value]) {
  const items = value !== null && typeof value === "object" ? Object.entries(value) : [];
  const nested = items.some(([, item]) => item !== null && typeof item === "object") || (items.length > 0 && !Array.isArray(value));
  if (!nested) return h("div", { class: "leaf" }, h("span", { class: "key" }, name), h("span", { class: "value" }, items.length ? value.join(", ") : typeof value === "object" ? "none" : String(value)));
  return h("details", { class: "tree", open: ["objective", "model", "suite"].includes(name) }, h("summary", {}, h("span", { class: "key" }, name)), items.map(tree));
}

// Two entries side by side: tests where they are comparable, and what differs where they are not.

async function drawCompare(host, baseId, candidateId) {
  const pair = [entryOf(baseId), entryOf(candidateId)];
  if (pair.includes(undefined) || pair[0] === pair[1]) return notHere(host, "Nothing to compare", `This board does not have two entries ${baseId} and ${candidateId}.`);
  const both = await Promise.all(pair.map(details));
  const base = pair[0].rows.find((row) => pair[1].rows.some((other) => other.group === row.group));
  const rows = base && [base, pair[1].rows.find((row) => row.group === base.group)];
  const plain = rows ? rows.map((row) => row.label) : pair.map((entry) => `${entry.objective} · ${entry.model}`);
  const names = plain[0] === plain[1] ? pair.map((entry, i) => `${plain[i]} [${entry.id.slice(0, 6)}]`) : plain;
  const curves = pair.map((_, i) => ({ name: names[i], curves: both[i].curves })).filter((item) => item.curves.length);
  const unlike = (title, about, values) => section(title, about, [], table(title, ["", ...names], differing(values)));
  const apart = () => [
    h("div", { class: "warning", role: "note" }, h("p", {}, h("strong", {}, "These entries are not comparable"), ", so there is no verdict. They stand side by side, with what keeps them apart.")),
    unlike("What keeps them apart", "Entries are comparable when these are all equal.", both.map((found) => found.conditions)),
    section("Side by side", "Each as it was recorded.", [], sideBySide(pair, names)),
  ];
  return fill(
    host,
    backLink(),
    h("h1", {}, names[1], h("small", {}, ` against ${names[0]}`)),
    h("p", { class: "lead" }, rows ? `${base.group.suite.label} · ${base.group.title}` : "Not comparable"),
    h("div", { class: "actions" }, h("a", { class: "button quiet", href: `#/compare/${candidateId}/${baseId}` }, "Swap")),
    rows ? verdicts(...rows, names) : apart(),
    rows && section("Metrics", "Each metric with its 95 % interval. Bars begin at 0.", [], bars(rows, (row) => names[rows.indexOf(row)])),
    curves.length > 0 && section("Training curves", "What the trainings logged, over the optimizer's steps.", [], curvesBody(curves)),
    unlike("What differs", "Everything in which the two entries are not alike.", both.map(({ entry: { metrics, runs, id, cost, ...rest } }) => rest)),
    sharedSamples(both, names),
  );
}

function verdicts(base, candidate, names) {
  const { metrics } = base.group.suite;
  const tests = metrics.map((_, i) => testOf(base, candidate, i));
  const value = (row, i) => (measured(row, i) ? [row.cells[i].text, row.cells[i].spread].filter(Boolean).join(" ± ") : ABSENT);
  const facts = (test, head, kind) => h("td", { class: kind, "data-head": head }, test?.[head === "95 % interval" ? "interval" : head === "Within" ? "family" : head.toLowerCase()] ?? ABSENT);
  const rows = metrics.map((metric, i) => {
    const test = tests[i];
    const word = test?.word ?? "not tested";
    const why = test && test.why !== ABSENT && h("span", { class: "why" }, test.why);
    return [
      metric.title,
      ...[base, candidate].map((row, side) => h("td", { class: "number", "data-head": names[side] }, value(row, i))),
      h("td", { class: "number difference" }, test?.text ?? ABSENT),
      h("td", { class: "verdict" }, h("span", { class: `word ${word}` }, word), why),
      ...[["95 % interval", "number"], ["p", "number"], ["Within", "why"], ["Detectable", "number"], ["Test", "why"]].map(([head, kind]) => facts(test, head, kind)),
    ];
  });
  const heads = ["Metric", ...names, "Difference", "Verdict", "95 % interval", "p", "Within", "Detectable", "Test"];
  const about = `${names[1]} minus ${names[0]}; of perplexities the relative change. “Detectable” is a true difference that as many runs detect with 80 % power, and large enough in 4 of 5 comparisons. All rows start from one pre-trained model.`;
  const command = [`These two were not compared when the page was made. This does it: `, h("code", {}, `emobench compare ${base.entry.id} ${candidate.entry.id}`)];
  const within = tests.flatMap((test, i) => (test?.within ?? []).map((row) => [metrics[i].title, ...row]));
  const few = "Too few seeds tell nothing about the objectives. Of the trained models, one seed each, their examples say:";
  const drawn = tests.flatMap((test, i) => (test?.effect === undefined || test.effect === null ? [] : [{ ...test, metric: metrics[i].title, verdict: test.word, label: test.word }]));
  const forests = Object.entries(Object.groupBy(drawn, (test) => test.unit)).map(([unit, own]) => chart(`Differences in ${unit}`, "forest", { rows: own, unit, height: 24 * own.length }));
  return [
    section("Verdicts", about, [], h("div", { class: "verdicts" }, table("Verdicts", heads, rows)), forests, !tests.some(Boolean) && h("p", { class: "note" }, command)),
    within.length > 0 && section("Within one seed", few, [], table("Within one seed", ["Metric", "Seed", "Difference", "95 % interval", "p", "Test"], within, [1, 2, 3, 4])),
  ];
}

function sideBySide(pair, names) {
  const keyed = pair.map(({ rows: [row] }) => new Map(row.group.suite.metrics.map((metric, i) => [metric.title, measured(row, i) && [row.cells[i].text, row.cells[i].spread].filter(Boolean).join(" ± ")])));
  const titles = unique(keyed.flatMap((metrics) => [...metrics.keys()]));
  return table("Side by side", ["Metric", ...names], titles.map((title) => [title, ...keyed.map((metrics) => metrics.get(title) || ABSENT)]), [1, 2]);
}

/** The leaves in which two plain values are not alike, as rows of a table. */
function differing(values) {
  const flat = (value, prefix) => {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return [[prefix, Array.isArray(value) ? JSON.stringify(value) : String(value ?? "none")]];
    return Object.entries(value).flatMap(([key, item]) => flat(item, prefix ? `${prefix}.${key}` : key));
  };
  const [left, right] = values.map((value) => new Map(flat(value, "")));
  const keys = unique([...left.keys(), ...right.keys()]).filter((key) => left.get(key) !== right.get(key));
  return keys.map((key) => [key, left.get(key) ?? "none", right.get(key) ?? "none"]);
}

function sharedSamples(both, names) {
  const prompts = both.map((found) => new Map(found.samples.flatMap((file) => file.texts.map((text) => [text.prompt ?? "", text.continuation]))));
  const shared = [...prompts[0].keys()].filter((prompt) => prompt && prompts[1].has(prompt)).slice(0, 5);
  const rows = shared.map((prompt) => [prompt, ...prompts.map((texts) => texts.get(prompt))]);
  return rows.length ? section("Samples", "The first texts of each for the same prompts.", [], table("Samples", ["Prompt", ...names], rows)) : "";
}

// The address after # says what is shown: #/ the board, #/entry/ID, #/compare/ID/ID.

async function route() {
  const [path, query] = location.hash.slice(1).split("?");
  if (path && !path.startsWith("/")) return; // a place on this page
  const [, page, ...ids] = path.split("/");
  const shown = { entry: drawEntry, compare: drawCompare }[page];
  for (const name of ["board", "entry", "compare"]) byId(`view-${name}`).hidden = name !== (shown ? page : "board");
  drawSelection();
  if (shown) {
    const host = byId(`view-${page}`);
    await shown(host, ...ids);
    host.querySelector("h1").setAttribute("tabindex", "-1");
    host.querySelector("h1").focus({ preventScroll: true });
    window.scrollTo(0, 0);
    return;
  }
  const held = new URLSearchParams(query ?? "");
  for (const name of [...Object.keys(FILTERS), "q"]) state[name] = held.get(name) ?? "";
  state.suite = Math.max(board.suites.findIndex((suite) => suite.label === held.get("suite")), 0);
  lastBoard = location.hash || "#/";
  drawFilters();
  drawBoard();
}

async function start() {
  if (!byId("index")) return;
  try {
    await loadBoard();
  } catch (error) {
    fill(byId("table"), h("p", { class: "empty" }, `The entries cannot be read (${error.message}). The page needs a browser of 2024 or later.`));
    return;
  }
  // Numbers are sorted with what is absent last, whichever way.
  const side = (a, b, sign) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * (a - b));
  Object.assign(DataTable.ext.type.order, { "measure-asc": (a, b) => side(a, b, 1), "measure-desc": (a, b) => side(a, b, -1) });
  window.addEventListener("hashchange", route);
  await route();
  document.documentElement.dataset.ready = "yes";
}

start();
