// Tables as text for papers: LaTeX (booktabs), Markdown and BibTeX, copied from what is shown.

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "±": "$\\pm$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "★": "$\\star$", "·": "$\\cdot$", "–": "--", "[": "{[}" };
const latexText = (text) => text.replace(/[\\~^<>±↑↓★·–[]|[&%$#_{}]/g, (sign) => LATEX[sign] ?? `\\${sign}`).replace(/(?<![\p{L}\d])-(?=\d)/gu, "$-$");
const markdownText = (text) => text.replace(/&/g, "&amp;").replace(/[\\`*_[\]<>|#~$]/g, "\\$&");

/** The buttons that copy a table, for below it. */
function copyButtons(node, title) {
  const button = (name, text) => h("button", { type: "button", class: "quiet small", "aria-label": `Copy ${title} as ${name}`, click: async (event) => flash(event.target, await copy(await text())) }, name);
  return h("p", { class: "copy" }, "Copy as ", button("LaTeX", () => latexTable(node, title)), button("Markdown", () => markdownTable(node)), button("BibTeX", () => bibtex(title)));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

function flash(button, copied) {
  const name = button.textContent;
  button.textContent = copied ? "Copied" : "Not copied";
  say(button.textContent);
  setTimeout(() => (button.textContent = name), 1500);
}

/** The text of a cell in one line; words of neighbouring elements have a space between them. */
function cellText(cell) {
  let [text, last] = ["", null];
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest(".unseen, details, th[scope=row] small") || !parent.checkVisibility()) continue;
    const data = parent.tagName === "SUP" ? `[${walker.currentNode.data}]` : walker.currentNode.data;
    text += parent === last ? data : ` ${data}`;
    last = parent;
  }
  return text.replace(/\s+/g, " ").trim();
}

/** The rows of a table as [{text, head, right, span}]; a column of boxes is left out. */
function tableRows(node) {
  const rows = [...node.rows].map((row) => [...row.cells].filter((cell) => !cell.matches(".pick, .unseen")));
  return rows.map((row) => row.map((cell) => ({ text: cellText(cell), right: cell.matches(".number, .told td"), span: cell.colSpan })));
}

function latexTable(node, title) {
  const [head, ...rows] = tableRows(node);
  const line = (row) => `${row.map(({ text, span }) => (span > 1 ? `\\multicolumn{${head.length}}{l}{\\textbf{${latexText(text)}}}` : latexText(text))).join(" & ")} \\\\`;
  const sides = head.map((_, i) => (i && rows.some((row) => row[i]?.right) ? "r" : "l")).join("");
  return [`% ${title}. \\usepackage{booktabs}`, `\\begin{tabular}{${sides}}`, "\\toprule", line(head), "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

function markdownTable(node) {
  const [head, ...rows] = tableRows(node);
  const line = (row) => `| ${head.map((_, i) => (row[i]?.span > 1 ? `**${markdownText(row[i].text)}**` : markdownText(row[i]?.text ?? ""))).join(" | ")} |`;
  const rule = `|${head.map((_, i) => (i && rows.some((row) => row[i]?.right) ? "---:" : "---")).join("|")}|`;
  return [line(head), rule, ...rows.map(line), ""].join("\n");
}

/** The page, and the sources of the shown entries and of their objectives. */
async function bibtex(title) {
  const { title: page, author, year, version } = board.cite;
  const [, view, ...ids] = location.hash.split("?")[0].split("/");
  const shown = ["entry", "compare"].includes(view) ? ids.map(entryOf) : unique(matching().map(({ entry }) => entry)).slice(0, 200);
  const key = (text) => text.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  const item = (name, fields) => `@misc{${name},\n${Object.entries(fields).filter(([, value]) => value).map(([field, value]) => `  ${field} = {${latexText(value)}}`).join(",\n")}\n}\n`;
  const items = new Map([["page", item(`emobench-${key(page)}`, { title: `${page}: ${title}`, author, year, howpublished: `emobench ${version}`, note: `Entries ${shown.slice(0, 20).map(({ id }) => id).join(", ")}` })]]);
  for (const entry of shown) {
    const found = await details(entry);
    const { cite } = found.entry.source;
    if (cite) items.set(cite, item(key(cite).slice(0, 40), { title: cite, note: found.links.map(([, address]) => address).join(", ") }));
    for (const { name, source } of await termsOf(found)) if (source) items.set(`objective ${name}`, item(`objective-${key(name)}`, { title: `Objective ${name}`, note: source }));
  }
  return [...items.values()].join("\n");
}
