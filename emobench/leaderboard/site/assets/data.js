// The board's data: the index at once, the details of an entry when they are asked for.

const TEST = [
  "baseline",
  "candidate",
  "metric",
  "effect",
  "log_scale",
  "low",
  "high",
  "p",
  "p_holm",
  "family",
  "tests",
  "detectable",
  "verdict",
  "test",
  "why",
  "seeds",
  "items",
  "within",
];
const board = { suites: [], groups: [], entries: [], chunk: 1 };
const chunks = new Map();

async function inflate(id) {
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

async function loadBoard() {
  Object.assign(board, await inflate("index"));
  board.groups.forEach((group, number) => {
    group.number = number;
    group.pairs = new Map();
    for (const row of group.tests) {
      const test = Object.fromEntries(TEST.map((name, i) => [name, row[i]]));
      group.pairs.set(`${test.baseline}/${test.candidate}/${test.metric}`, test);
    }
  });
  board.entries.forEach((entry, number) => {
    entry.number = number;
    entry.groups = [];
  });
  for (const group of board.groups) for (const number of group.entries) board.entries[number].groups.push(group);
}

/** All that an entry holds, with its curves and samples. */
async function details(entry) {
  const chunk = Math.floor(entry.number / board.chunk);
  if (!chunks.has(chunk)) chunks.set(chunk, inflate(`chunk-${chunk}`));
  return (await chunks.get(chunk))[entry.number % board.chunk];
}

const entryOf = (id) => board.entries.find((entry) => entry.id === id);

/** The test of a candidate against a baseline (places in the group), turned round where it was made so. */
function testOf(group, baseline, candidate, metric) {
  const found = group.pairs.get(`${baseline}/${candidate}/${metric}`);
  if (found) return found;
  const other = group.pairs.get(`${candidate}/${baseline}/${metric}`);
  if (!other) return null;
  const negative = (value) => (value === null ? null : -value);
  const turned = { better: "worse", worse: "better" };
  return {
    ...other,
    baseline,
    candidate,
    effect: negative(other.effect),
    low: negative(other.high),
    high: negative(other.low),
    verdict: turned[other.verdict] || other.verdict,
    within: other.within.map(([seed, test, effect, low, high, p]) => [
      seed,
      test,
      negative(effect),
      negative(high),
      negative(low),
      p,
    ]),
  };
}

const label = (group, place) => group.labels[place];
