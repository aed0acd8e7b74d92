// What is shown as files: the table as CSV, table and charts as PNG. Nothing leaves the browser.

const fileName = (what) => `${byId("title").textContent} ${what}`.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  say(`${name} was saved`);
}

/** A field of CSV; what a spreadsheet would take for a formula is kept as text. */
function csvField(value) {
  const text = typeof value === "string" && /^\s*[=+@＝＋－＠-]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Every row that matches, in the table's order, with the metrics that it shows. Fractions are in percent. */
function saveCsv(suite, table, columns) {
  const metrics = suite.metrics.map((metric, place) => ({ ...metric, place })).filter((metric) => columns.some((column) => column.key === metric.key && isShown(column)));
  const heads = metrics.flatMap(({ key, fraction }) => [`${key}${fraction ? " (%)" : ""}`, `${key} sd`, `${key} low`, `${key} high`]);
  const ofMetric = (row) => ({ place }) => {
    const cell = measured(row, place);
    return cell ? [cell.mean, cell.spread && Number(cell.spread), cell.low, cell.high] : ["", "", "", ""];
  };
  const fixed = ({ group, entry, label, rank, counts }) => [suite.label, group.title, label, entry.model, entry.kind, entry.id, typeof rank === "number" ? rank : "", counts.join(" to "), entry.seeds, entry.created];
  const rows = table.rows({ order: "applied" }).data().toArray();
  const lines = [["suite", "group", "objective", "model", "kind", "entry", "rank", "n", "seeds", "recorded", ...heads], ...rows.map((row) => [...fixed(row), ...metrics.flatMap(ofMetric(row))])];
  save(new Blob([lines.map((line) => `${line.map(csvField).join(",")}\r\n`).join("")], { type: "text/csv;charset=utf-8" }), `${fileName(suite.label)}.csv`);
}

async function savePicture({ svg, width, height }, name) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = h("canvas", { width: Math.ceil(width * 2), height: Math.ceil(height * 2) });
  const context = canvas.getContext("2d");
  context.fillStyle = colourNow("var(--surface)");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(2, 2);
  context.drawImage(image, 0, 0, width, height);
  canvas.toBlob((blob) => save(blob, `${name}.png`), "image/png");
}

/** A colour of the style sheet as it is in the present theme. */
function colourNow(colour) {
  const probe = byId("status");
  probe.style.color = colour;
  const found = getComputedStyle(probe).color;
  probe.style.color = "";
  return found;
}

/** A chart as a picture: outside of the page its colours can be no variables of the style sheet. */
function svgPicture(node) {
  const { width, height } = node.getBoundingClientRect();
  const svg = new XMLSerializer().serializeToString(node).replace(/var\(--[\w-]+\)/g, colourNow);
  return { svg, width, height };
}

/** A table as a picture: the ground of each cell, and each word where the browser put it. */
function tablePicture(table, title) {
  const PADDING = 20;
  const left = table.parentElement.scrollLeft;
  table.parentElement.scrollLeft = 0;
  table.classList.add("pictured");
  const from = table.getBoundingClientRect();
  const [width, height] = [from.width + 2 * PADDING, from.height + 2 * PADDING + 24];
  const parts = [word({ x: PADDING, y: PADDING + 12, style: getComputedStyle(byId("title")), size: 16 }, title)];
  for (const cell of table.querySelectorAll("th, td")) {
    const box = cell.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const { backgroundColor, borderTopColor, borderTopWidth } = getComputedStyle(cell);
    const at = { x: box.x - from.x + PADDING, y: box.y - from.y + PADDING + 24 };
    parts.push(`<rect x="${at.x}" y="${at.y}" width="${box.width}" height="${box.height}" fill="${backgroundColor}"/>`);
    parts.push(`<rect x="${at.x}" y="${at.y}" width="${box.width}" height="${parseFloat(borderTopWidth)}" fill="${borderTopColor}"/>`);
    for (const dot of cell.querySelectorAll(".dot")) {
      const { x, y, width: wide } = dot.getBoundingClientRect();
      parts.push(`<circle cx="${x - from.x + PADDING + wide / 2}" cy="${y - from.y + PADDING + 24 + wide / 2}" r="${wide / 2}" fill="${getComputedStyle(dot).backgroundColor}"/>`);
    }
    parts.push(...words(cell, from).map(([place, text]) => word({ ...place, x: place.x + PADDING, y: place.y + PADDING + 24 }, text)));
  }
  table.classList.remove("pictured");
  table.parentElement.scrollLeft = left;
  return { svg: `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${parts.join("")}</svg>`, width, height };
}

/** The words of a cell that can be seen, parted after hyphens, where a line may end, with the start of each one's baseline from a corner. */
function words(cell, from) {
  const found = [];
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const ruler = h("canvas").getContext("2d");
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest(".unseen")) continue;
    const style = getComputedStyle(node.parentElement);
    for (const match of node.data.matchAll(/[^\s-]+-?|-/g)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const box = range.getBoundingClientRect();
      if (!box.width) continue;
      ruler.font = style.font;
      const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = ruler.measureText(match[0]);
      found.push([{ x: box.x - from.x, y: box.y - from.y + (box.height * above) / (above + below), style }, match[0]]);
    }
  }
  return found;
}

function word({ x, y, style, size }, text) {
  const safe = text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const family = style.fontFamily.replaceAll('"', "'");
  return `<text x="${x}" y="${y}" font-family="${family}" font-size="${size ?? parseFloat(style.fontSize)}" font-weight="${style.fontWeight}" fill="${style.color}">${safe}</text>`;
}
