// What the board shows, kept in the address after #: who opens the link sees the same rows, order and columns.

const FILTERS = { model: (row) => row.entry.model, objective: (row) => row.entry.name, kind: (row) => row.entry.kind };
const EMPTY = { model: "", objective: "", kind: "", q: "", sort: "", hide: "", show: "", shade: "", base: "", x: "", y: "" };
const state = { suite: 0, ...EMPTY };
let lastBoard = "#/";

const suiteNow = () => board.suites[state.suite];
const suiteRows = () => suiteNow().groups.flatMap((group) => group.rows);

/** Change what is shown, and the address with it; another suite begins afresh. */
function keep(name, value) {
  if (name === "suite") Object.assign(state, EMPTY);
  state[name] = value;
  const query = new URLSearchParams(Object.entries(state).filter(([key, held]) => held && key !== "suite"));
  if (board.suites.length > 1) query.set("suite", suiteNow().label);
  lastBoard = `#/${query.size ? `?${query}` : ""}`;
  history.replaceState(null, "", lastBoard);
}

function readAddress(query) {
  const held = new URLSearchParams(query ?? "");
  for (const name of Object.keys(EMPTY)) state[name] = held.get(name) ?? "";
  state.suite = Math.max(board.suites.findIndex((suite) => suite.label === held.get("suite")), 0);
  lastBoard = location.hash || "#/";
}

const listed = (text) => text.split(",").filter(Boolean);

function isShown({ key, secondary }) {
  return secondary ? listed(state.show).includes(key) : !listed(state.hide).includes(key);
}

/** Show or hide columns: only what differs from the columns at first is in the address. */
function showColumns(columns, on) {
  for (const name of ["hide", "show"]) {
    const keys = columns.filter((column) => Boolean(column.secondary) === (name === "show")).map((column) => column.key);
    const others = listed(state[name]).filter((key) => !keys.includes(key));
    keep(name, [...others, ...(on === (name === "show") ? keys : [])].join(","));
  }
}
