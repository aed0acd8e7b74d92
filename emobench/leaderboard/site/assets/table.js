// The table: DataTables over an array of rows. Rows are sorted within their group of what may be compared.

const PAGE = 50;
let grid = null;
const chosen = [];

/** Sort numbers with what is absent last, whichever way. */
function orderable() {
  const order = DataTable.ext.type.order;
  const side = (a, b, sign) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * (a - b));
  order["measure-asc"] = (a, b) => side(a, b, 1);
  order["measure-desc"] = (a, b) => side(a, b, -1);
}

function columnsOf(suite) {
  const groups = suiteGroups();
  const ranked = groups.some((group) => group.ranks);
  const seeded = groups.some((group) => group.entries.some((number) => board.entries[number].seeds));
  const by = (read) => (data, type, row) => read(row, type);
  const text = (head, read, show) => ({
    head,
    type: "string",
    className: "text",
    render: by((row, type) => (type === "display" ? show(row) : read(row))),
  });
  const hidden = (read) => ({ head: "", visible: false, type: "num", render: by(read) });
  const metrics = suite.metrics.map((metric, number) => ({
    head: [metric.name, metric.head],
    type: "measure",
    className: "number",
    orderSequence: metric.better === false ? ["asc", "desc"] : ["desc", "asc"],
    render: by((row, type) =>
      type === "display" ? metricCell(row, metric, number) : (row.entry.values[number]?.[0] ?? null),
    ),
  }));
  return [
    hidden((row) => row.group.number),
    hidden((row) => row.place),
    {
      head: "Compare",
      orderable: false,
      className: "pick",
      render: by((row, type) => (type === "display" ? pick(row) : "")),
    },
    text("Objective", (row) => label(row.group, row.place), objectiveCell),
    ranked && {
      head: "Rank",
      type: "measure",
      className: "number",
      orderSequence: ["asc", "desc"],
      render: by((row, type) => row.group.ranks?.[row.place] ?? (type === "display" ? ABSENT : null)),
    },
    ...metrics,
    seeded && {
      head: "Seeds",
      type: "num",
      className: "number",
      render: by((row, type) => (type === "display" ? row.entry.seeds || ABSENT : row.entry.seeds)),
    },
    text(
      "Recorded",
      (row) => row.entry.created,
      (row) => h("span", { class: "date" }, row.entry.created),
    ),
  ].filter(Boolean);
}

/** What is remarked of numbers of this suite, in the order of the notes. */
function remarks() {
  const entries = suiteGroups().flatMap((group) => group.entries.map((number) => board.entries[number]));
  const found = [...new Set(entries.flatMap((entry) => Object.values(entry.flags).flat()))];
  const everywhere = (flag) =>
    entries.every((entry) => Object.keys(entry.values).every((number) => entry.flags[number]?.includes(flag)));
  return { marked: found.filter((flag) => !everywhere(flag)), shared: found.filter(everywhere) };
}

const REMARKS = {
  small_n: "few examples: shown, not ranked",
  fewer_prompts: "fewer prompts than the limit asked for",
};
const remark = (flag) => REMARKS[flag] ?? flag.replaceAll("_", " ");

function metricCell({ group, place, entry }, metric, number) {
  const value = entry.values[number];
  if (!value) {
    const reason = entry.missing[number] || "not measured";
    return h("span", { class: "absent", title: reason }, ABSENT, h("span", { class: "unseen" }, ` ${reason}`));
  }
  const decimals = group.decimals[number];
  const [mean, std, low, high] = value;
  const flags = entry.flags[number] || [];
  const marks = flags.map((flag) => grid.marked.indexOf(flag) + 1).filter(Boolean);
  const title = [low === null ? null : `95 % interval ${interval(low, high, metric, decimals)}`, ...flags.map(remark)];
  const best = group.best[number] === place;
  return h(
    "span",
    { class: best ? "best" : null, title: title.filter(Boolean).join("; ") || null },
    best && [
      h("span", { class: "star", "aria-hidden": "true" }, "★"),
      h("span", { class: "unseen" }, "best beyond noise: "),
    ],
    plain(mean * scale(metric), decimals),
    marks.length > 0 && h("sup", {}, marks.join(" ")),
    std !== null && h("span", { class: "spread" }, ` ± ${plain(std * scale(metric), decimals)}`),
  );
}

function objectiveCell({ group, place, entry }) {
  const name = label(group, place);
  const link = h("a", { href: `#/entry/${entry.id}`, title: entry.objective === name ? null : entry.objective }, name);
  return h("span", { class: "name" }, link, values("kind").length > 1 && h("span", { class: "chip" }, entry.kind));
}

function pick({ group, place, entry }) {
  const box = h("input", {
    type: "checkbox",
    "data-entry": entry.id,
    "aria-label": `Compare ${label(group, place)} of ${entry.model}`,
  });
  limit(box);
  box.addEventListener("change", () => choose(entry.id, box.checked));
  return box;
}

function choose(id, on) {
  const place = chosen.indexOf(id);
  if (place >= 0) chosen.splice(place, 1);
  if (on) chosen.push(id);
  document.querySelectorAll("[data-entry]").forEach(limit);
  drawSelection();
}

/** Two are compared: while two are chosen, the other boxes wait. */
function limit(box) {
  box.checked = chosen.includes(box.dataset.entry);
  box.disabled = chosen.length === 2 && !box.checked;
  box.title = box.disabled ? "Two at most: untick one first" : "";
}

function drawSelection() {
  const bar = byId("selection");
  bar.hidden = chosen.length === 0 || byId("view-board").hidden;
  const names = chosen.map((id) => entryOf(id)).map((entry) => h("b", {}, `${entry.objective} · ${entry.model}`));
  const ready = chosen.length === 2;
  fill(
    bar,
    h("span", { class: "chosen" }, "Baseline: ", names[0] || "", ready ? ", candidate: " : "", names[1] || ""),
    ready
      ? h("a", { class: "button", href: `#/compare/${chosen.join("/")}` }, "Compare")
      : h("span", {}, "Choose one more, the candidate."),
    ready && h("span", { class: "why" }, "Two at most."),
    h(
      "button",
      { type: "button", class: "quiet", on: { click: () => [...chosen].forEach((id) => choose(id, false)) } },
      "Clear",
    ),
  );
}

function groupHead(rows, number) {
  const group = board.groups[number];
  return h(
    "span",
    { class: "group" },
    h("strong", {}, group.title),
    group.parameters ? h("span", {}, `${large(group.parameters)} parameters`) : null,
    group.lines.map((line) => h("span", {}, line)),
  );
}

function drawTable(rows) {
  const suite = board.suites[state.suite];
  if (grid?.suite === state.suite) {
    grid.table.clear().rows.add(rows).draw();
  } else {
    grid?.table.destroy();
    grid = { suite: state.suite, ...remarks() };
    grid.table = makeTable(rows, suite);
  }
  byId("table").removeAttribute("aria-busy");
  say(`${rows.length} rows`);
}

function makeTable(rows, suite) {
  const columns = columnsOf(suite);
  const heads = columns.map(({ head, className }) =>
    h(
      "th",
      { scope: "col", class: className },
      [head].flat().map((part, i) => (i ? h("span", { class: "unit" }, part) : breakable(part))),
    ),
  );
  const node = h(
    "table",
    { class: "grid" },
    h("caption", { class: "unseen" }, `Entries of ${suite.label}`),
    h("thead", {}, h("tr", {}, heads)),
  );
  byId("table").replaceChildren(node, h("p", { class: "legend" }, legend(suite)));
  const nothing = "No entry matches. Clear a filter to see more.";
  const made = new DataTable(node, {
    data: rows,
    columns: columns.map(({ head, ...column }) => ({ data: null, ...column })),
    deferRender: true,
    autoWidth: false,
    searching: false,
    pageLength: PAGE,
    lengthMenu: [PAGE, 4 * PAGE, 20 * PAGE],
    orderFixed: { pre: [[0, "asc"]] },
    order: [[1, "asc"]],
    rowGroup: { dataSrc: (row) => row.group.number, startRender: groupHead },
    layout: {
      topStart: null,
      topEnd: null,
      bottomStart: null,
      bottomEnd: null,
      bottom: rows.length > PAGE ? ["info", "pageLength", "paging"] : null,
    },
    language: {
      info: "_START_ to _END_ of _TOTAL_ rows",
      infoEmpty: "No rows",
      lengthMenu: "_MENU_ a page",
      emptyTable: nothing,
      zeroRecords: nothing,
    },
  });
  // DataTables tells assistive technology the direction of the groups, which never change it.
  const told = () =>
    node
      .querySelectorAll("th[aria-sort]")
      .forEach((head) =>
        head.setAttribute("aria-sort", head.classList.contains("dt-ordering-desc") ? "descending" : "ascending"),
      );
  made.on("draw", told);
  const scroller = node.parentElement;
  scroller.classList.add("scroller");
  hintScroll(scroller);
  for (const [name, value] of Object.entries({
    tabindex: "0",
    role: "region",
    "aria-label": `Entries of ${suite.label}`,
  }))
    scroller.setAttribute(name, value);
  return made;
}

function legend(suite) {
  const groups = suiteGroups();
  const entries = groups.flatMap((group) => group.entries.map((number) => board.entries[number]));
  const stars = groups.some((group) => group.best.some((place) => place !== null));
  const untested = groups.map((group) => group.untested).find(Boolean);
  const unranked = groups.filter((group) => !group.ranked).length;
  return [
    entries.some((entry) => entry.seeds > 1) && "Mean ± standard deviation over seeds.",
    stars && "★ better than every other objective of its group beyond noise, as the comparison of each pair says (two-sided 5 %).",
    !stars && untested && `Nothing is marked as best: ${untested}.`,
    groups.some((group) => group.ranks) &&
      "Rank: 1 + the rows that are better beyond noise (Holm over all pairs, too), so that tied rows share a place.",
    entries.some((entry) => Object.keys(entry.values).length < suite.metrics.length) &&
      `${ABSENT} not measured: the entry says why.`,
    ...grid.shared.map((flag) => `All numbers: ${remark(flag)}.`),
    ...grid.marked.map((flag, i) => `[${i + 1}] ${remark(flag)}.`),
    groups.length > 1 && "Rows are sorted within their group: only these may be ranked together.",
    unranked > 0 &&
      `${unranked === groups.length ? "The groups are" : `${unranked} of ${groups.length} groups are`} too large for stars and ranks here: emobench leaderboard show has them.`,
  ]
    .filter(Boolean)
    .join(" ");
}
