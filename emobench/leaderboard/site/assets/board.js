// The board: filters, the table, and charts of the rows that match. The address keeps what is shown.

const FILTERS = { model: (row) => row.entry.model, objective: (row) => row.entry.name, kind: (row) => row.entry.kind };
const state = { suite: 0, model: "", objective: "", kind: "", q: "" };
const view = { metric: "", baseline: "", group: "", part: "", axis: "parameters", scaled: 0 };
const chosen = [];
let grid = null;
let lastBoard = "#/";

const suiteNow = () => board.suites[state.suite];
const suiteRows = () => board.groups.filter((group) => group.suite === suiteNow()).flatMap((group) => group.rows);

function matching() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = ({ entry }) => `${entry.objective} ${entry.model} ${entry.id} ${entry.kind}`.toLowerCase();
  return suiteRows().filter(
    (row) => Object.entries(FILTERS).every(([name, of]) => !state[name] || of(row) === state[name]) && words.every((word) => text(row).includes(word)),
  );
}

function drawFilters() {
  let typing = 0;
  const update = (name) => (value) => {
    if (name === "suite") Object.assign(state, { model: "", objective: "", kind: "", q: "" });
    state[name] = name === "suite" ? Number(value) : value;
    const query = new URLSearchParams(Object.entries(state).filter(([key, held]) => held && key !== "suite"));
    if (board.suites.length > 1) query.set("suite", suiteNow().label);
    lastBoard = `#/${query.size ? `?${query}` : ""}`;
    history.replaceState(null, "", lastBoard);
    if (name === "suite") drawFilters();
    drawBoard();
  };
  const choices = Object.entries(FILTERS).map(([name, of]) => {
    const values = unique(suiteRows().map(of)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const label = name[0].toUpperCase() + name.slice(1);
    return values.length > 1 && select(label, [["", `all ${name}s`], ...same(values)], state[name], update(name));
  });
  const search = h("input", { type: "search", "aria-label": "Search", value: state.q, autocomplete: "off" });
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => update("q")(search.value), 120);
  });
  const suites = board.suites.map((suite, place) => [place, suite.label]);
  const suite = suites.length > 1 && select("Suite", suites, state.suite, update("suite"));
  fill(byId("filters"), suite, choices, h("label", { class: "field grow" }, h("span", {}, "Search"), search));
  byId("filters").onsubmit = (event) => event.preventDefault();
}

function drawBoard() {
  const rows = matching();
  if (grid?.suite === state.suite) grid.table.clear().rows.add(rows).draw();
  else {
    grid?.table.destroy();
    grid = { suite: state.suite, table: makeTable(rows, suiteNow()) };
  }
  byId("table").removeAttribute("aria-busy");
  say(`${rows.length} rows`);
  const groups = unique(rows.map((row) => row.group));
  fill(byId("charts"), rows.length ? [differences(rows, groups), groupPanels(rows, groups), scaling(rows)] : []);
}

function columnsOf(suite) {
  const all = suiteRows();
  const shownAs = (show, read) => (_, type, row) => (type === "display" ? show(row) : read(row));
  const hidden = (read) => ({ head: [""], visible: false, type: "num", render: (_, __, row) => read(row) });
  const measure = (head, show, read, better) => ({ head, type: "measure", className: "number", orderSequence: better === false ? ["asc", "desc"] : ["desc", "asc"], render: shownAs(show, read) });
  const text = (head, show, read) => ({ head: [head], type: "string", className: "text", render: shownAs(show, read) });
  return [
    hidden((row) => row.group.number),
    hidden((row) => row.place),
    { head: ["Compare"], orderable: false, className: "pick", render: shownAs(pick, () => "") },
    text("Objective", objectiveCell, (row) => row.label),
    all.some((row) => row.rank) && measure(["Rank"], (row) => row.rank ?? ABSENT, (row) => row.rank, false),
    ...suite.metrics.map((metric, i) => measure([metric.name, metric.head], (row) => metricCell(row.cells[i]), (row) => measured(row, i)?.mean ?? null, metric.better)),
    all.some((row) => row.entry.seeds) && measure(["Seeds"], (row) => row.entry.seeds || ABSENT, (row) => row.entry.seeds, false),
    text("Recorded", (row) => h("span", { class: "date" }, row.entry.created), (row) => row.entry.created),
  ].filter(Boolean);
}

function metricCell(cell) {
  if (!cell || typeof cell === "string") {
    const reason = cell || "not measured";
    return h("span", { class: "absent", title: reason }, ABSENT, h("span", { class: "unseen" }, ` ${reason}`));
  }
  const title = [cell.low !== undefined && `95 % interval ${cell.interval}`, cell.about].filter(Boolean).join("; ");
  const star = cell.best && [h("span", { class: "star", "aria-hidden": "true" }, "★"), h("span", { class: "unseen" }, "best beyond noise: ")];
  const spread = cell.spread && h("span", { class: "spread" }, ` ± ${cell.spread}`);
  return h("span", { class: cell.best && "best", title: title || null }, star, cell.text, cell.marks && h("sup", {}, cell.marks), spread);
}

function objectiveCell({ entry, label }) {
  const kinds = new Set(suiteRows().map(FILTERS.kind)).size > 1;
  const link = h("a", { href: `#/entry/${entry.id}`, title: entry.objective === label ? null : entry.objective }, label);
  return h("span", { class: "name" }, link, kinds && h("span", { class: "chip" }, entry.kind));
}

/** A name that may be broken after its separators. */
const breakable = (text) => text.split(/(?<=[_/.])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

function makeTable(rows, suite) {
  const columns = columnsOf(suite);
  const heads = columns.map(({ head, className }) => h("th", { scope: "col", class: className }, breakable(head[0]), head[1] && h("span", { class: "unit" }, head[1])));
  const node = h("table", { class: "grid" }, h("caption", { class: "unseen" }, `Entries of ${suite.label}`), h("thead", {}, h("tr", {}, heads)));
  fill(byId("table"), node, h("p", { class: "legend" }, suite.legend));
  const nothing = "No entry matches. Clear a filter to see more.";
  const long = rows.length > 50;
  const made = new DataTable(node, {
    data: rows,
    columns: columns.map(({ head, ...column }) => ({ data: null, ...column })),
    deferRender: true,
    autoWidth: false,
    searching: false,
    pageLength: 50,
    lengthMenu: [50, 200, 1000],
    orderFixed: { pre: [[0, "asc"]] }, // rows are sorted within their group of what may be compared
    order: [[1, "asc"]],
    rowGroup: { dataSrc: (row) => row.group.number, startRender: (_, place) => groupHead(board.groups[place]) },
    layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null, bottom: long ? ["info", "pageLength", "paging"] : null },
    language: { info: "_START_ to _END_ of _TOTAL_ rows", infoEmpty: "No rows", lengthMenu: "_MENU_ a page", emptyTable: nothing, zeroRecords: nothing },
  });
  // DataTables tells assistive technology the direction of the groups, which never change it.
  const direction = (head) => (head.classList.contains("dt-ordering-desc") ? "descending" : "ascending");
  made.on("draw", () => node.querySelectorAll("th[aria-sort]").forEach((head) => head.setAttribute("aria-sort", direction(head))));
  scrolling(node.parentElement, `Entries of ${suite.label}`);
  return made;
}

const groupHead = (group) => h("span", { class: "group" }, h("strong", {}, group.title), group.lines.map((line) => h("span", {}, line)));

// Two entries are compared: while two are chosen, the other boxes wait.

function pick({ label, entry }) {
  const box = h("input", { type: "checkbox", "data-entry": entry.id, "aria-label": `Compare ${label} of ${entry.model}` });
  box.addEventListener("change", () => choose(entry.id, box.checked));
  return limited(box);
}

function limited(box) {
  box.checked = chosen.includes(box.dataset.entry);
  box.disabled = chosen.length === 2 && !box.checked;
  box.title = box.disabled ? "Two at most: untick one first" : "";
  return box;
}

function choose(id, on) {
  if (chosen.includes(id)) chosen.splice(chosen.indexOf(id), 1);
  if (on) chosen.push(id);
  document.querySelectorAll("[data-entry]").forEach(limited);
  drawSelection();
}

function drawSelection() {
  byId("selection").hidden = !chosen.length || byId("view-board").hidden;
  const [base, candidate] = chosen.map(entryOf).map((entry) => h("b", {}, `${entry.objective} · ${entry.model}`));
  fill(
    byId("selection"),
    h("span", { class: "chosen" }, "Baseline: ", base, candidate && ", candidate: ", candidate),
    candidate ? h("a", { class: "button", href: `#/compare/${chosen.join("/")}` }, "Compare") : h("span", {}, "Choose one more, the candidate."),
    candidate && h("span", { class: "why" }, "Two at most."),
    h("button", { type: "button", class: "quiet", click: () => [...chosen].forEach((id) => choose(id, false)) }, "Clear"),
  );
}
