// What is shown: one suite, and of it the rows that match. The address keeps it, so that a view can be shared.

const state = { suite: 0, model: "", objective: "", kind: "", q: "" };
let typing = 0;
const NAMES = ["model", "objective", "kind", "q"];

const suiteGroups = () => board.groups.filter((group) => group.suite === state.suite);

/** The rows that match, as {group, place, entry}. */
function visible() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [];
  for (const group of suiteGroups()) {
    group.entries.forEach((number, place) => {
      const entry = board.entries[number];
      if (state.model && entry.model !== state.model) return;
      if (state.objective && entry.name !== state.objective) return;
      if (state.kind && entry.kind !== state.kind) return;
      const text = `${entry.objective} ${entry.model} ${entry.id} ${entry.kind}`.toLowerCase();
      if (words.every((part) => text.includes(part))) rows.push({ group, place, entry });
    });
  }
  return rows;
}

function values(name) {
  const found = new Set(suiteGroups().flatMap((group) => group.entries.map((number) => board.entries[number][name])));
  return [...found].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}

function drawFilters(changed) {
  const form = byId("filters");
  const update = (name) => (value) => {
    state[name] = name === "suite" ? Number(value) : value;
    if (name === "suite") for (const other of NAMES) state[other] = "";
    remember();
    if (name === "suite") drawFilters(changed);
    changed();
  };
  const choice = (text, name, field, all) => {
    const options = values(field);
    return options.length < 2
      ? null
      : select(text, [["", all], ...options.map((value) => [value, value])], state[name], update(name));
  };
  const typed = () => {
    clearTimeout(typing);
    typing = setTimeout(() => update("q")(search.value), 120);
  };
  const search = h("input", {
    type: "search",
    "aria-label": "Search",
    value: state.q,
    autocomplete: "off",
    on: { input: typed },
  });
  form.replaceChildren(
    ...[
      board.suites.length > 1 &&
        select(
          "Suite",
          board.suites.map((suite, i) => [i, suite.label]),
          state.suite,
          update("suite"),
        ),
      choice("Model", "model", "model", "all models"),
      choice("Objective", "objective", "name", "all objectives"),
      choice("Kind", "kind", "kind", "all kinds"),
      h("label", { class: "field grow" }, h("span", {}, "Search"), search),
    ].filter(Boolean),
  );
  form.onsubmit = (event) => event.preventDefault();
}

function remember() {
  const query = new URLSearchParams();
  if (board.suites.length > 1) query.set("suite", board.suites[state.suite].label);
  for (const name of NAMES) if (state[name]) query.set(name, state[name]);
  history.replaceState(null, "", `#/${[...query].length ? `?${query}` : ""}`);
}

function recall(text) {
  const query = new URLSearchParams(text);
  const suite = board.suites.findIndex((found) => found.label === query.get("suite"));
  if (suite >= 0) state.suite = suite;
  for (const name of NAMES) state[name] = query.get(name) || "";
}
