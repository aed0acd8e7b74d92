// The view of one entry: everything that it holds.

const backLink = () => h("p", { class: "back" }, h("a", { href: lastBoard }, "← All entries"));
const notHere = (host, title, text) => fill(host, backLink(), h("h1", {}, title), h("p", { class: "empty" }, text));
const wordCell = (text, word, tag = "td") => h(tag, { class: "number" }, text, h("span", { class: `word ${word}` }, word));

async function drawEntry(host, id) {
  const entry = entryOf(id);
  if (!entry) return notHere(host, "No such entry", `This board has no entry ${id}. It may have been superseded.`);
  const found = await details(entry); // and its rows
  const full = found.entry;
  const terms = await termsOf(found);
  const seeds = full.seeds.length ? `${full.seeds.length} ${full.seeds.length === 1 ? "seed" : "seeds"}` : "no seeds";
  const others = entry.rows.flatMap((row) => row.group.rows.filter((other) => other !== row));
  const options = others.map((row) => [row.entry.id, `${row.label} · ${row.group.title}`]);
  const compared = (other) => other && (location.hash = `#/compare/${other}/${id}`);
  const heads = ["Metric", "Mean", "Std", "95 % interval", "Interval covers", "n", full.seeds.length ? `Seeds ${full.seeds.join(", ")}` : "Values"];
  const abouts = new Map(entry.rows[0].group.suite.metrics.map((metric) => [metric.title, metric.about]));
  const metrics = found.metrics.map(([title, ...row]) => [term(title, abouts.get(title)), ...(row.length > 1 ? [...row.slice(0, 5), h("td", { class: "number values" }, row[5])] : [h("td", { colspan: 6, class: "reason" }, row[0])])]);
  const noise = "Standard deviation of a value if only this source varied (perplexities in percent). Left in the mean: its standard error, for these texts.";
  const curves = full.seeds.length > 0 && full.runs.length > 0 && curvesBody([{ name: entry.rows[0].label, objective: entry.name, curves: found.curves }]);
  return fill(
    host,
    backLink(),
    h("h1", {}, full.objective.name, h("small", {}, ` on ${entry.rows[0].group.title}`)),
    h("p", { class: "lead" }, [`${full.suite.name} v${full.suite.version}`, full.kind, seeds, entry.created].join(" · ")),
    full.source.cite && h("p", { class: "about" }, `Source: ${full.source.cite}`),
    full.source.command && h("p", { class: "about" }, "Command: ", h("code", {}, full.source.command)),
    found.links.length > 0 && h("p", { class: "about links" }, found.links.map(([text, address]) => h("a", { href: address, rel: "noreferrer" }, text))),
    options.length > 0 && h("div", { class: "actions" }, select("Compare with", [["", "choose an entry"], ...options], "", compared)),
    section("Metrics", "Means over the seeds.", [], table("Metrics", heads, metrics, [1, 2, 3, 5])),
    found.noise.length > 0 &&
      section("Where the noise comes from", noise, [], table("Where the noise comes from", ["Metric", "Training seed", "Sampling", "k-means", "Texts", "Averaged over", "Left in the mean"], found.noise, [1, 2, 3, 4, 5, 6])),
    entry.rows.map(rivals),
    curves && section("Training curves", "Logged over the optimizer's steps.", [], curves),
    terms.length > 0 && objective(terms, full.objective),
    await sampleBrowser([entry], [entry.rows[0].label]),
    found.problems.length > 0 && section("Files", "These files could not be used:", [], h("ul", {}, found.problems.map((text) => h("li", {}, text)))),
    section("Everything in the entry", "The entry as it is stored; fractions are not in percent.", [], h("div", { class: "json" }, Object.entries(full).map(tree))),
  );
}

/** The equation of an objective, its source, and its code where it is what the entry was trained with. */
function objective(terms, trained) {
  const values = Object.entries(trained.params).map(([name, value]) => `${name} = ${value}`).join(", ");
  const about = [values && `With ${values}.`, terms.some((term) => term.code === null) && "This is the installed version; the entry was trained with other code, or its code was not recorded."];
  const term = ({ name, equation, about: text, source, code }) => [
    terms.length > 1 && h("h3", {}, name),
    equation && h("code", { class: "equation" }, equation),
    h("p", { class: "about" }, text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part))),
    source && h("p", { class: "about" }, `Source: ${source}`),
    code && h("details", {}, h("summary", {}, "Code"), h("pre", { class: "code", tabindex: "0", "aria-label": `Code of ${name}` }, code)),
  ];
  return section("Objective", about.filter(Boolean).join(" "), [], terms.map(term));
}

/** The tests of a row against each other one of its group. */
function rivals(row) {
  const others = row.group.rows.filter((other) => other !== row).slice(0, 50);
  if (!others.length) return "";
  const { metrics } = row.group.suite;
  const places = [...metrics.keys()].filter((i) => !metrics[i].secondary && others.some((base) => testOf(base, row, i)));
  if (!places.length) return "";
  const tested = (base, i) => {
    const test = testOf(base, row, i);
    return test ? wordCell(test.text, test.word) : number(ABSENT);
  };
  const rows = others.map((base) => [h("a", { href: `#/compare/${base.entry.id}/${row.entry.id}` }, base.label), ...places.map((i) => tested(base, i))]);
  const about = "This entry minus the other; perplexities in percent. Select one for intervals and p-values.";
  return section(`Against the other rows of ${row.group.title}`, about, [], table("Comparisons", ["Against", ...places.map((i) => metrics[i].title)], rows));
}

/** A value of JSON as a line, or as a branch that can be folded. */
function tree([name, value]) {
  const items = value !== null && typeof value === "object" ? Object.entries(value) : [];
  const nested = items.some(([, item]) => item !== null && typeof item === "object") || (items.length > 0 && !Array.isArray(value));
  if (!nested) return h("div", { class: "leaf" }, h("span", { class: "key" }, name), h("span", { class: "value" }, items.length ? value.join(", ") : typeof value === "object" ? "none" : String(value)));
  return h("details", { class: "tree", open: ["objective", "model", "suite"].includes(name) }, h("summary", {}, h("span", { class: "key" }, name)), items.map(tree));
}
