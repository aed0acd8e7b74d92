// The columns of the table: their headings, cells, shades and order, and the menu that chooses them.

function columnsOf(suite) {
  const all = suiteRows();
  const shownAs = (show, read) => (_, type, row) => (type === "display" ? show(row) : read(row));
  const hidden = (read) => ({ head: [""], visible: false, type: "num", render: (_, __, row) => read(row) });
  const measure = (key, head, show, read, better) => ({ key, head, type: "measure", className: "number", orderSequence: better === false ? ["asc", "desc"] : ["desc", "asc"], render: shownAs(show, read) });
  const text = (key, head, show, read) => ({ key, head: [head], type: "string", className: "text", render: shownAs(show, read) });
  const ofMetric = (metric, i) => ({
    ...measure(metric.key, [metric.name, metric.head], (row) => metricCell(row.cells[i]), (row) => measured(row, i)?.mean ?? null, metric.better),
    ...{ about: metric.about, secondary: metric.secondary, title: metric.title, createdCell: tinted(all, metric, i) },
  });
  const rank = (row) => (typeof row.rank === "number" ? row.rank : null);
  return [
    hidden((row) => row.group.number),
    hidden((row) => row.place),
    { head: ["Compare"], orderable: false, className: "pick", render: shownAs(pick, () => "") },
    text("objective", "Objective", objectiveCell, (row) => row.label),
    all.some(rank) && { ...measure("rank", ["Rank"], (row) => rank(row) ?? absent(row.rank ?? "not ranked"), rank, false), about: RANK },
    ...suite.metrics.map(ofMetric),
    all.some((row) => row.counts.length) && { ...measure("n", ["n"], countsCell, (row) => row.counts[0] ?? null), about: "Number of test examples, smallest to largest over the metrics." },
    all.some((row) => row.entry.seeds) && { ...measure("seeds", ["Seeds"], (row) => row.entry.seeds || ABSENT, (row) => row.entry.seeds, false), about: "Number of training seeds." },
    text("recorded", "Recorded", (row) => h("span", { class: "date" }, row.entry.created), (row) => row.entry.created),
  ].filter(Boolean);
}

const RANK = "1 plus the number of rows in the group that are better beyond noise (Holm over all pairs). Tied rows share a rank.";
const countsCell = ({ counts }) => (counts.length ? counts.map((count) => count.toLocaleString("en")).join(" to ") : ABSENT);
const absent = (reason) => h("span", { class: "absent", title: reason }, ABSENT, h("span", { class: "unseen" }, ` ${reason}`));

function metricCell(cell) {
  if (!cell || typeof cell === "string") return absent(cell || "not measured");
  const title = [cell.low !== undefined && `95 % interval ${cell.interval}`, cell.about].filter(Boolean).join("; ");
  const star = cell.best && [h("span", { class: "star", "aria-hidden": "true" }, "★"), h("span", { class: "unseen" }, "best beyond noise: ")];
  const spread = cell.spread && h("span", { class: "spread" }, ` ± ${cell.spread}`);
  return h("span", { class: cell.best && "best", title: title || null }, star, cell.text, cell.marks && h("sup", {}, cell.marks), spread);
}

function objectiveCell({ entry, label }) {
  const kinds = new Set(suiteRows().map(FILTERS.kind)).size > 1;
  const link = h("a", { href: `#/entry/${entry.id}`, title: entry.objective === label ? null : entry.objective }, breakable(label));
  return h("span", { class: "name" }, dot(entry), link, kinds && h("span", { class: "chip" }, entry.kind));
}

/** A dot in the colour of an entry's objective. */
function dot(entry) {
  const node = h("span", { class: "dot", "aria-hidden": "true" });
  node.style.background = colourOf(entry.name);
  return node;
}

/**
 * Return what shades a cell: the better a value stands in its column, the deeper; of perplexities by their logarithm.
 * A value of too few examples has no shade.
 */
function tinted(rows, metric, place) {
  const scaled = (mean) => (metric.log ? Math.log(mean) : mean);
  const known = rows.map((row) => measured(row, place)).filter((cell) => cell && !cell.small).map((cell) => scaled(cell.mean));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return (node, _, row) => {
    const cell = measured(row, place);
    if (!cell || cell.small || metric.better === null || !(high > low)) return;
    const share = (scaled(cell.mean) - low) / (high - low);
    node.classList.add("heat");
    node.style.setProperty("--share", `${(100 * (metric.better ? share : 1 - share)).toFixed(0)}%`);
  };
}

/** A name that may be broken after its separators. */
const breakable = (text) => text.split(/(?<=[_/=-]|\.(?!\d))|(?=\()/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

function heading({ head, className, about }) {
  const unit = head[1] && h("span", { class: "unit" }, head[1]);
  return h("th", { scope: "col", class: className, "data-tip": about }, h("span", { class: about && "term" }, breakable(head[0])), unit);
}

function columnMenu(columns, changed) {
  const chosen = columns.filter((column) => column.key && column.key !== "objective");
  const set = (some, on) => {
    showColumns(some, on);
    for (const column of some) boxes.get(column).checked = on;
    changed(some);
  };
  const boxes = new Map(chosen.map((column) => [column, h("input", { type: "checkbox", checked: isShown(column), change: (event) => set([column], event.target.checked) })]));
  const lines = chosen.map((column) => h("label", { "data-tip": column.about }, boxes.get(column), h("span", {}, column.title ?? column.head.join(" "))));
  const tints = h("input", { type: "checkbox", checked: state.shade !== "off", change: () => { keep("shade", tints.checked ? "" : "off"); changed([]); } });
  const all = h("button", { type: "button", class: "quiet small", click: () => set(chosen, true) }, "Show all");
  const first = () => { set(chosen.filter((column) => !column.secondary), true); set(chosen.filter((column) => column.secondary), false); };
  return menu("Columns", h("div", { class: "row" }, all, h("button", { type: "button", class: "quiet small", click: first }, "Reset")), h("div", { class: "choices" }, lines), h("label", { class: "apart" }, tints, h("span", {}, "Shade values by column")));
}

/** A button that opens a panel; a click elsewhere or Escape closes it. */
function menu(label, ...body) {
  const node = h("details", { class: "menu" }, h("summary", { class: "button quiet" }, label), h("div", { class: "pop" }, body));
  const outside = (event) => { if (!node.contains(event.target)) node.open = false; };
  node.addEventListener("toggle", () => document[node.open ? "addEventListener" : "removeEventListener"]("pointerdown", outside));
  node.addEventListener("keydown", (event) => { if (event.key === "Escape") { node.open = false; node.querySelector("summary").focus(); } });
  return node;
}
