// What models wrote, one prompt at a time: sorted by the difference of a score, searched, and walked with j and k.

let walk = null; // moves the selection of the browser that was drawn last

const textsOf = (entry) => (byId(`samples-${entry.id}`) ? packed(`samples-${entry.id}`) : []);
const keyOf = ({ prompt, sample }) => (sample ? `${prompt}.${sample}` : prompt);

/** A browser of what entries wrote for the same prompts, the first of them the baseline. The address keeps its state. */
async function sampleBrowser(entries, names) {
  const all = await Promise.all(entries.map(textsOf));
  const tasks = unique(all[0].map(({ task }) => task)).filter((task) => all.every((files) => files.some((file) => file.task === task)));
  if (!tasks.length) return "";
  const [path, query] = location.hash.split("?");
  const held = { task: "", seed: "", sort: "", q: "", sample: "", ...Object.fromEntries(new URLSearchParams(query ?? "")) };
  const [controls, list, detail] = [h("div", { class: "controls" }), h("ul", { role: "listbox", tabindex: "0", "aria-label": "Samples" }), h("div", { class: "detail" })];
  const host = h("div", { class: "browser", "data-linked": Boolean(held.sample) }, list, detail);
  let rows = [];

  const address = () => `${path}?${new URLSearchParams(Object.entries(held).filter(([, value]) => value))}`;
  const choose = (place) => {
    const row = rows[Math.min(Math.max(place, 0), rows.length - 1)];
    held.sample = row ? row.key : "";
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(rows[i] === row)));
    const item = list.children[rows.indexOf(row)];
    if (item && (item.offsetTop < list.scrollTop || item.offsetTop + item.offsetHeight > list.scrollTop + list.clientHeight)) list.scrollTop = item.offsetTop;
    fill(detail, row ? sampleDetail(row, names, address()) : h("p", { class: "empty" }, "No sample matches."));
  };
  const set = (name) => (value) => {
    Object.assign(held, { [name]: value }, ["task", "sort"].includes(name) && { sample: "" }, name === "task" && { sort: "", seed: "" });
    draw();
    history.replaceState(null, "", address());
  };
  const search = h("input", { type: "search", "aria-label": "Search the samples", value: held.q, autocomplete: "off", input: () => set("q")(search.value) });

  function draw() {
    if (!tasks.includes(held.task)) held.task = tasks[0];
    const seeds = unique(all[0].filter(({ task }) => task === held.task).map(({ seed }) => String(seed)));
    if (!seeds.includes(held.seed)) held.seed = seeds[0];
    const files = all.map((of) => of.find(({ task, seed }) => task === held.task && String(seed) === held.seed) ?? of.find(({ task }) => task === held.task));
    const metrics = Object.entries(files[0].metrics).filter(([key]) => files.every((file) => file.texts.some((text) => key in text.scores)));
    const [up, down] = entries.length > 1 ? ["largest gain in", "largest loss in"] : ["highest", "lowest"];
    const orders = [["recorded", "as recorded"], ...metrics.flatMap(([key, [title]]) => [[`+${key}`, `${up} ${title}`], [`-${key}`, `${down} ${title}`]])];
    if (!orders.some(([order]) => order === held.sort)) held.sort = entries.length > 1 && metrics.length ? orders[1][0] : "recorded";
    rows = sampleRows(files, metrics, held);
    fill(
      controls,
      tasks.length > 1 && select("Task", same(tasks), held.task, set("task")),
      seeds.length > 1 && select("Seed", same(seeds), held.seed, set("seed")),
      orders.length > 1 && select("Order", orders, held.sort, set("sort")),
      h("label", { class: "field grow" }, h("span", {}, "Search"), search),
    );
    const option = (row, place) => h("li", { role: "option", click: () => { choose(place); history.replaceState(null, "", address()); } }, h("b", {}, row.shown), row.texts.at(-1).text.trim().slice(0, 90) || "(empty)");
    fill(list, rows.map(option));
    choose(Math.max(rows.findIndex(({ key }) => key === held.sample), 0));
  }

  const move = (steps) => choose(rows.findIndex(({ key }) => key === held.sample) + steps);
  walk = (steps) => {
    if (!host.clientWidth) return;
    move(steps);
    history.replaceState(null, "", address());
  };
  draw();
  requestAnimationFrame(() => move(0)); // scrolls the list, which is on the page by then
  const over = entries.length > 1 ? `Scores are differences on each prompt: ${names[1]} minus ${names[0]}. ` : "Scores are of each prompt. ";
  return section("Samples", `${over}Press j and k, or the arrow keys in the list, for the next and previous sample.`, [], controls, host);
}

/** The prompts that all files have, {key, texts, shown}, in the order of the state `held`. */
function sampleRows(files, metrics, { sort, q }) {
  const keyed = files.map((file) => new Map(file.texts.map((text) => [keyOf(text), text])));
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const [sign, key] = [sort[0] === "-" ? -1 : 1, sort.slice(1)];
  const better = Object.fromEntries(metrics)[key]?.[1];
  const score = (texts) => {
    const scores = texts.slice(0, 2).map((text) => text.scores[key]);
    return scores.includes(undefined) ? null : scores.length > 1 ? scores[1] - scores[0] : scores[0];
  };
  const rows = [];
  for (const id of keyed[0].keys()) {
    const texts = keyed.map((of) => of.get(id));
    if (texts.includes(undefined)) continue;
    if (unique(texts.map((text) => text.prefix).filter((prefix) => prefix !== undefined)).length > 1) continue; // cut by other rules
    const all = texts.flatMap(({ prompt, prefix, reference, source, text }) => [prompt, prefix, reference, source, text]).join("\n").toLowerCase();
    if (!words.every((word) => all.includes(word))) continue;
    const value = score(texts);
    const shown = value === null ? id : `${texts.length > 1 && value > 0 ? "+" : ""}${value.toFixed(1)}`;
    rows.push({ key: id, texts, value, shown, seeds: files.map(({ seed }) => seed), metrics });
  }
  // A gain is a better score, whichever way is better.
  const way = files.length > 1 && better === false ? -sign : sign;
  return better === undefined ? rows : rows.sort((a, b) => way * ((b.value ?? -way * Infinity) - (a.value ?? -way * Infinity)) || 0);
}

/** Prefix and reference where they are available, and a column for each model with its scores and a judge's verdict. */
function sampleDetail({ key, texts, seeds, metrics }, names, address) {
  const of = (part) => texts.find((text) => text[part] !== undefined)?.[part];
  const block = (name, text, kind) => text !== undefined && h("div", { class: kind }, h("b", {}, name), h("span", {}, text));
  const column = ({ text, scores, verdict }, i) => {
    const facts = metrics.filter(([metric]) => scores[metric] !== undefined).map(([metric, [title]]) => `${title} ${scores[metric].toFixed(1)}`);
    const name = unique(seeds).length > 1 && seeds[i] !== null ? `${names[i]}, seed ${seeds[i]}` : names[i];
    return h("div", {}, h("b", {}, name), h("span", {}, text), h("small", {}, [...facts, verdict].filter(Boolean).join(" · ")));
  };
  return [
    h("p", { class: "about" }, `Prompt ${key} · `, h("a", { href: address }, "Link to this sample")),
    block("Prefix", of("prefix"), "prompt"),
    h("div", { class: "columns" }, block("Reference text", of("reference"), "reference"), of("reference") === undefined && block("Human text with the prefix", of("source"), "reference"), texts.map(column)),
  ];
}

document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  const steps = { j: 1, k: -1, ...(event.target.role === "listbox" && { ArrowDown: 1, ArrowUp: -1 }) }[event.key];
  if (!walk || typing || !steps || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  walk(steps);
});
