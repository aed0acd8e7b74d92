// The data of the page: an index at once; the groups of a suite and the details of an entry when they are asked for.

let board = null;
const chunks = new Map();

async function inflate(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** What a script of the page holds, read once. */
function packed(id) {
  if (!chunks.has(id)) chunks.set(id, inflate(id));
  return chunks.get(id);
}

async function loadBoard() {
  board = await inflate("index");
  board.entries.forEach((entry, place) => Object.assign(entry, { place, rows: [] }));
}

/** Read the groups of a suite, once: a board of many suites shows its first one before it has read the others. */
async function loadSuite(number) {
  const suite = board.suites[number];
  if (suite.groups) return;
  const groups = await packed(`groups-${number}`);
  if (suite.groups) return; // another caller was waiting, too
  groups.forEach((group, place) => {
    Object.assign(group, { number: place, suite });
    group.rows = group.rows.map(([entry, label, rank, counts, cells], at) => ({ group, place: at, entry: board.entries[entry], label, rank, counts, cells }));
    for (const row of group.rows) row.entry.rows.push(row);
    const tests = group.tests.map((values) => Object.fromEntries(board.fields.map((field, i) => [field, values[i]])));
    group.tests = new Map(tests.map((test) => [`${test.baseline}/${test.candidate}/${test.metric}`, test]));
  });
  suite.groups = groups;
}

async function details(entry) {
  await loadSuite(entry.suite);
  const chunk = Math.floor(entry.place / board.chunk);
  return (await packed(`chunk-${chunk}`))[entry.place % board.chunk];
}

/** What is known of an entry's objective: its terms, none where it was not installed. */
async function termsOf({ objective }) {
  return (await packed("objectives"))[objective];
}

const entryOf = (id) => board.entries.find((entry) => entry.id === id);
const testOf = (base, row, metric) => base.group.tests.get(`${base.place}/${row.place}/${metric}`);
const measured = (row, metric) => typeof row.cells[metric] === "object" && row.cells[metric];
const shownValue = (cell) => [cell.text, cell.spread].filter(Boolean).join(" ± ");
