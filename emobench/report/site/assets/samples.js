// Generated texts beside the reference, the human text, of the same prompt, with the words that differ marked.

const MOST_WORDS = 400;

/** The texts of an entry: prefix, human text and what the model wrote, side by side. */
function samples(files, name) {
  const title = (file) => `${file.task}${file.seed === null ? "" : `, seed ${file.seed}`}`;
  const shown = files.map((file) => h("details", { class: "samples", open: true }, h("summary", {}, title(file)), h("ol", {}, file.texts.map((text) => sample(text, [[name, text]])))));
  const compared = files.some((file) => file.texts.some((text) => text.reference !== undefined));
  return shown.length ? section("Samples", `The first generated texts (not selected). ${compared ? MARKED : ""}`, [], shown) : "";
}

const MARKED = "Highlighted: words missing from the reference, or else from the first text.";

/** One prompt with a column for the human text and for each [name, what a model wrote], with a judge's verdict on it. */
function sample({ prompt, reference }, named) {
  const origin = reference ?? (named.length > 1 ? named[0][1].continuation : undefined);
  const text = (written, i) => (origin === undefined || (i === 0 && reference === undefined) ? written : marked(origin, written));
  const column = ([name, { continuation, verdict }], i) => h("div", { class: "text" }, h("b", {}, name), h("span", {}, text(continuation, i)), verdict !== undefined && h("b", {}, verdict));
  const human = reference !== undefined && h("div", { class: "reference" }, h("b", {}, "Reference text"), h("span", {}, reference));
  return h("li", {}, prompt !== undefined && h("p", { class: "prompt" }, h("b", {}, "Prefix"), h("span", {}, prompt)), h("div", { class: "columns" }, human, named.map(column)));
}

/** A text whose words are marked unless they stand in another one in the same order (longest common subsequence). */
function marked(origin, text) {
  const [left, right] = [origin, text].map((one) => one.split(/(\s+)/).filter(Boolean));
  const words = (parts) => parts.filter((part) => part.trim()).slice(0, MOST_WORDS);
  const [a, b] = [words(left), words(right)];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1) lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) [i, j] = [i + 1, (kept.add(j), j + 1)];
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  const nodes = [];
  let place = 0;
  for (const part of right) {
    const own = !part.trim() || place >= MOST_WORDS || kept.has(place);
    if (part.trim()) place += 1;
    const last = nodes.at(-1);
    if (!part.trim() && last) last.text += part;
    else if (last?.own === own) last.text += part;
    else nodes.push({ own, text: part });
  }
  return nodes.flatMap(({ own, text: shown }) => (own ? shown : [h("mark", {}, shown.trimEnd()), shown.slice(shown.trimEnd().length)]));
}

/** The prompts that several entries have in common, with a column for each. */
function sharedSamples(all, names) {
  const keyed = all.map((found) => new Map(found.samples.flatMap((file) => file.texts.map((text, place) => [text.prompt ?? `${file.task} ${place}`, text]))));
  const shared = [...keyed[0].keys()].filter((key) => keyed.every((texts) => texts.has(key))).slice(0, 5);
  const one = (key) => sample(keyed.map((texts) => texts.get(key)).find((text) => text.reference !== undefined) ?? keyed[0].get(key), names.map((name, i) => [name, keyed[i].get(key)]));
  return shared.length ? section("Samples", `The first texts for the same prompts. ${MARKED}`, [], h("div", { class: "samples" }, h("ol", {}, shared.map(one)))) : "";
}
