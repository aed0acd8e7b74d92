// The board: filters, the table, and charts of the rows that match.

const MOST_CHOSEN = 6;
const view = { undecided: false, kind: "", forest: "", group: "", part: "", axis: "parameters", scaled: 0, plane: "" };
const chosen = [];
let grid = null;

function matching() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = ({ entry }) => `${entry.objective} ${entry.model} ${entry.id} ${entry.kind}`.toLowerCase();
  return suiteRows().filter(
    (row) => Object.entries(FILTERS).every(([name, of]) => !state[name] || of(row) === state[name]) && words.every((word) => text(row).includes(word)),
  );
}

function drawFilters() {
  let typing = 0;
  const update = (name) => async (value) => {
    if (name === "suite") await loadSuite(Number(value));
    keep(name, name === "suite" ? Number(value) : value);
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
    grid = { suite: state.suite, ...makeTable(rows, suiteNow()) };
  }
  byId("table").removeAttribute("aria-busy");
  fill(byId("finding"), suiteNow().finding);
  performance.mark("table");
  const counted = `${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}`;
  fill(byId("counted"), counted);
  say(counted);
  const groups = unique(rows.map((row) => row.group));
  drawDifferences();
  fill(byId("charts"), rows.length ? [tradeOff(rows, groups), groupPanels(rows, groups), scaling(rows)] : []);
}

function drawDifferences() {
  const rows = matching();
  fill(byId("differences"), new Set(rows.map((row) => row.group)).size < rows.length && differences(rows));
}

function makeTable(rows, suite) {
  const columns = columnsOf(suite);
  const node = h("table", { class: "grid" }, h("caption", { class: "unseen" }, `Entries of ${suite.label}`), h("thead", {}, h("tr", {}, columns.map(heading))));
  const shaded = () => node.classList.toggle("shaded", state.shade !== "off");
  const changed = (some) => {
    for (const column of some) made.column(columns.indexOf(column)).visible(isShown(column));
    shaded();
    drawDifferences();
  };
  const save = (label, of) => h("button", { type: "button", class: "quiet", "aria-label": `Download the table as ${label}`, click: of }, label);
  const tools = [columnMenu(columns, changed), save("CSV", () => saveCsv(suite, made, columns)), save("PNG", () => savePicture(tablePicture(node, suite.label), fileName(suite.label)))];
  fill(byId("table"), h("div", { class: "tools" }, h("span", { id: "counted" }), tools), node, h("p", { class: "legend" }, suite.legend), copyButtons(node, `Entries of ${suite.label}`));
  const nothing = "No entry matches. Clear a filter to see more.";
  const [key, way] = state.sort.split(":");
  const sorted = columns.findIndex((column) => column.key && column.key === key);
  const long = rows.length > 50;
  const made = new DataTable(node, {
    data: rows,
    columns: columns.map((column) => {
      const { head, key: _, about, secondary, title, ...plain } = column;
      return { ariaTitle: title ?? head.join(" "), visible: !column.key || isShown(column), ...plain, data: null };
    }),
    deferRender: true,
    autoWidth: false,
    searching: false,
    pageLength: 50,
    lengthMenu: [50, 200, 1000],
    orderFixed: { pre: [[0, "asc"]] }, // rows are sorted within their group of what may be compared
    order: sorted < 0 ? [[1, "asc"]] : [[sorted, way === "asc" ? "asc" : "desc"]],
    rowGroup: { dataSrc: (row) => row.group.number, startRender: (_, place) => groupHead(suite.groups[place]) },
    layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null, bottom: long ? ["info", "pageLength", "paging"] : null },
    language: { info: "_START_ to _END_ of _TOTAL_ rows", infoEmpty: "No rows", lengthMenu: "_MENU_ a page", emptyTable: nothing, zeroRecords: nothing },
  });
  // DataTables tells assistive technology the direction of the groups, which never change it.
  const direction = (head) => (head.classList.contains("dt-ordering-desc") ? "descending" : "ascending");
  made.on("draw", () => node.querySelectorAll("th[aria-sort]").forEach((head) => head.setAttribute("aria-sort", direction(head))));
  made.on("order", () => {
    const [place, how] = made.order()[0] ?? [1];
    keep("sort", columns[place].key ? `${columns[place].key}:${how}` : "");
  });
  scrolling(node.parentElement, `Entries of ${suite.label}`);
  shaded();
  return { table: made };
}

/** The head of a group: its title, and folded what its rows share. */
function groupHead({ title, lines }) {
  const shared = lines.length > 0 && h("details", {}, h("summary", {}, "Conditions"), lines.map((line) => h("p", {}, line)));
  return h("span", { class: "group" }, h("strong", {}, title), shared);
}

// Up to six entries are compared, the first of them as the baseline: while six are chosen, the other boxes wait.

function pick({ label, entry }) {
  const box = h("input", { type: "checkbox", "data-entry": entry.id, "aria-label": `Compare ${label} of ${entry.model}` });
  box.addEventListener("change", () => choose(entry.id, box.checked));
  return limited(box);
}

function limited(box) {
  box.checked = chosen.includes(box.dataset.entry);
  box.disabled = chosen.length === MOST_CHOSEN && !box.checked;
  box.title = box.disabled ? "Six at most: untick one first" : "";
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
  const [base, ...others] = chosen.map(entryOf).map(({ rows: [row] }) => h("b", {}, `${row.label} · ${row.group.title}`));
  fill(
    byId("selection"),
    h("span", { class: "chosen" }, "Baseline: ", base, others.length > 0 && " against ", others.flatMap((other, i) => (i ? [", ", other] : [other]))),
    others.length ? h("a", { class: "button", href: `#/compare/${chosen.join("/")}` }, `Compare ${chosen.length}`) : h("span", {}, "Choose one more, or up to five."),
    chosen.length === MOST_CHOSEN && h("span", { class: "why" }, "Six at most."),
    h("button", { type: "button", class: "quiet", click: () => [...chosen].forEach((id) => choose(id, false)) }, "Clear"),
  );
}
