// Two entries side by side: tests where they are comparable, and what differs where they are not.

async function drawCompare(baseId, candidateId) {
  const host = byId("view-compare");
  const pair = [entryOf(baseId), entryOf(candidateId)];
  if (pair.includes(undefined) || pair[0] === pair[1]) {
    fill(
      host,
      backLink(),
      h("h1", {}, "Nothing to compare"),
      h("p", { class: "empty" }, `This board does not have two entries ${baseId} and ${candidateId}.`),
    );
    return;
  }
  const [base, candidate] = pair;
  const both = await Promise.all(pair.map(details));
  const group = base.groups.find((own) => candidate.groups.includes(own));
  const names = pairNames(pair, group);
  fill(
    host,
    backLink(),
    h("h1", {}, names[1], h("small", {}, ` against ${names[0]}`)),
    h("p", { class: "lead" }, group ? `${board.suites[group.suite].label} · ${group.title}` : "Not comparable"),
    h(
      "div",
      { class: "actions" },
      shareLink(),
      h("a", { class: "button quiet", href: `#/compare/${candidate.id}/${base.id}` }, "Swap"),
    ),
    group ? verdicts(group, base, candidate, names) : apart(both, pair, names),
    group && withinSeeds(group, base, candidate),
    bars(group, pair, names),
    curvesSection(
      pair.map((entry, i) => ({ name: names[i], curves: both[i].curves })).filter((item) => item.curves.length),
      both[1].entry,
    ),
    section(
      "What differs",
      "Everything in which the two entries are not alike.",
      [],
      table(["", ...names], unlike(both), "What differs"),
    ),
    pairSamples(both, names),
  );
}

function pairNames(pair, group) {
  const names = pair.map((entry) =>
    group ? label(group, group.entries.indexOf(entry.number)) : `${entry.objective} · ${entry.model}`,
  );
  return names[0] === names[1] ? pair.map((entry, i) => `${names[i]} [${entry.id.slice(0, 6)}]`) : names;
}

function shareLink() {
  const field = h("input", {
    type: "text",
    readonly: true,
    value: location.href,
    "aria-label": "Link to this comparison",
    on: { focus: () => field.select() },
  });
  const copy = async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    say("The link was copied");
  };
  const button = h("button", { type: "button", on: { click: copy } }, "Copy link");
  return h("span", { class: "share" }, field, button);
}

function verdicts(group, base, candidate, names) {
  const places = [base, candidate].map((entry) => group.entries.indexOf(entry.number));
  let tested = 0;
  const notes = new Set();
  const rows = board.suites[group.suite].metrics.map((metric, number) => {
    const decimals = group.decimals[number];
    const test = testOf(group, ...places, number);
    const facts = about(test, metric, decimals);
    const right = (text, head) => h("td", { class: "number", "data-head": head }, text);
    if (test) tested += 1;
    if (test?.why) notes.add(test.why);
    return [
      metricTitle(metric),
      right(cell(base.values[number], metric, decimals), names[0]),
      right(cell(candidate.values[number], metric, decimals), names[1]),
      h("td", { class: "number difference" }, test ? effect(test.effect, test, metric, decimals) : ABSENT),
      h(
        "td",
        { class: "verdict" },
        h("span", { class: `word ${test?.verdict ?? "none"}` }, word(test)),
        test?.why && h("span", { class: "why" }, test.why),
      ),
      right(facts.interval, "95 % interval"),
      right(facts.p, "p"),
      h("td", { class: "why", "data-head": "Within" }, facts.family),
      right(facts.detectable, "Detectable"),
      h("td", { class: "why", "data-head": "Test" }, test?.test ?? ABSENT),
    ];
  });
  const heads = [
    "Metric",
    names[0],
    names[1],
    "Difference",
    "Verdict",
    "95 % interval",
    "p",
    "Within",
    "Detectable",
    "Test",
  ];
  const command = `emobench compare ${base.id} ${candidate.id}`;
  const text = `${names[1]} minus ${names[0]}; of perplexities the relative change. “Detectable” is a true difference that as many runs show 4 times in 5, and large enough in 4 of 5 comparisons. All is of one pre-trained model.`;
  return section(
    "Verdicts",
    text,
    [],
    h("div", { class: "verdicts" }, table(heads, rows, "Verdicts")),
    !tested &&
      h(
        "p",
        { class: "note" },
        "These two were not compared when the page was made. This does it: ",
        h("code", {}, command),
      ),
  );
}

/** What single seeds say where the objectives are undetermined: something about these models, not about objectives. */
function withinSeeds(group, base, candidate) {
  const places = [base, candidate].map((entry) => group.entries.indexOf(entry.number));
  const right = (text) => h("td", { class: "number" }, text);
  const rows = board.suites[group.suite].metrics.flatMap((metric, number) => {
    const test = testOf(group, ...places, number);
    const decimals = group.decimals[number];
    return (test?.within ?? []).map(([seed, name, difference, low, high, p]) => [
      metricTitle(metric),
      right(seed ?? ABSENT),
      right(effect(difference, test, metric, decimals)),
      right(
        low === null ? ABSENT : `${effect(low, test, metric, decimals)} to ${effect(high, test, metric, decimals)}`,
      ),
      right(pValue(p)),
      h("td", { class: "why" }, name),
    ]);
  });
  if (!rows.length) return "";
  const text =
    "Too few seeds tell nothing about the objectives. Of the trained models, one seed each, their examples say:";
  return section(
    "Within one seed",
    text,
    [],
    table(["Metric", "Seed", "Difference", "95 % interval", "p", "Test"], rows, "Within one seed"),
  );
}

function apart(both, pair, names) {
  const rows = unlike(both.map((found) => ({ entry: found.conditions })));
  return [
    h(
      "div",
      { class: "warning", role: "note" },
      h(
        "p",
        {},
        h("strong", {}, "These entries are not comparable"),
        ", so there is no verdict. They stand side by side, with what keeps them apart.",
      ),
    ),
    section(
      "What keeps them apart",
      "Entries are comparable when these are all equal.",
      [],
      table(["", ...names], rows, "What keeps them apart"),
    ),
    section("Side by side", "Each as it was recorded.", [], sideBySide(pair, names)),
  ];
}

function sideBySide(pair, names) {
  const keyed = pair.map(
    (entry) =>
      new Map(board.suites[entry.groups[0].suite].metrics.map((metric, number) => [metric.key, [metric, number]])),
  );
  const keys = [...new Set(keyed.flatMap((metrics) => [...metrics.keys()]))];
  const show = (i, key) => {
    const [metric, number] = keyed[i].get(key) || [];
    return h(
      "td",
      { class: "number" },
      metric ? cell(pair[i].values[number], metric, pair[i].groups[0].decimals[number]) : ABSENT,
    );
  };
  return table(
    ["Metric", ...names],
    keys.map((key) => [key, show(0, key), show(1, key)]),
    "Side by side",
  );
}

function bars(group, pair, names) {
  if (!group) return "";
  const rows = pair.map((entry) => ({ group, place: group.entries.indexOf(entry.number), entry }));
  const panels = panelsOf(rows, (row) => names[pair.indexOf(row.entry)]);
  return section(
    "Metrics",
    "Each metric with its 95 % interval. Bars begin at 0.",
    [],
    chart("Metrics of both", (width) => barsSpec({ panels, names, width })),
  );
}

/** The leaves in which two plain values are not alike, as rows of a table. */
function unlike(both) {
  const flat = (value, prefix, into) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value))
      for (const [key, item] of Object.entries(value)) flat(item, prefix ? `${prefix}.${key}` : key, into);
    else into.set(prefix, Array.isArray(value) ? JSON.stringify(value) : String(value ?? "none"));
    return into;
  };
  const left_out = ["metrics", "runs", "id", "cost"];
  const [left, right] = both.map(({ entry }) =>
    flat(Object.fromEntries(Object.entries(entry).filter(([key]) => !left_out.includes(key))), "", new Map()),
  );
  const keys = [...new Set([...left.keys(), ...right.keys()])].filter((key) => left.get(key) !== right.get(key));
  return keys.map((key) => [key, left.get(key) ?? "none", right.get(key) ?? "none"]);
}

function pairSamples(both, names) {
  const prompts = both.map(
    (found) =>
      new Map(found.samples.flatMap((file) => file.texts.map((text) => [`${text.prompt ?? ""}`, text.continuation]))),
  );
  const shared = [...prompts[0].keys()].filter((prompt) => prompt && prompts[1].has(prompt));
  if (!shared.length) return "";
  const rows = shared.slice(0, 5).map((prompt) => [prompt, prompts[0].get(prompt), prompts[1].get(prompt)]);
  return section(
    "Samples",
    "The first texts of each for the same prompts.",
    [],
    table(["Prompt", ...names], rows, "Samples"),
  );
}
