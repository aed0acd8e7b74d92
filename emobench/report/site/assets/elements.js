// Elements. What comes from an entry is always a text node or an attribute's value, never markup.

const ABSENT = "–";
const byId = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)];
const say = (text) => (byId("status").textContent = text); // to a screen reader

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  return fill(node, ...children);
}

function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

function select(label, options, value, changed) {
  const field = h("select", { "aria-label": label, change: () => changed(field.value) });
  fill(field, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", { class: "field" }, h("span", {}, label), field);
}

const same = (values) => values.map((value) => [value, value]);

function section(title, about, controls, ...body) {
  const shown = controls.filter(Boolean);
  return h(
    "section",
    { class: "panel", "aria-label": title },
    h("h2", {}, title),
    h("p", { class: "about" }, about),
    shown.length > 0 && h("div", { class: "controls" }, shown),
    body,
  );
}

const number = (...shown) => h("td", { class: "number" }, ...shown);

/** A table of rows of texts and cells; the first of a row is its head. Columns named in `numeric` are right-aligned. */
function table(caption, heads, rows, numeric = []) {
  const cell = (item, i) => {
    if (item instanceof HTMLTableCellElement) return item;
    return i ? (numeric.includes(i) ? number(item) : h("td", {}, item)) : h("th", { scope: "row" }, item);
  };
  const right = (i) => numeric.includes(i) || rows.some((row) => row[i]?.classList?.contains("number"));
  const head = heads.map((text, i) => h("th", { scope: "col", class: right(i) && "number" }, text));
  const body = rows.map((row) => h("tr", {}, row.map(cell)));
  const node = h("table", { class: "plain" }, h("caption", { class: "unseen" }, caption));
  node.append(h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return h("div", {}, scrolling(h("div", {}, node), `${caption}, table`), copyButtons(node, caption));
}

/** Let a node scroll sideways, and say in classes on which sides more is hidden, for the style sheet to fade them. */
function scrolling(node, label) {
  const look = () => {
    const left = Math.abs(node.scrollLeft);
    node.classList.toggle("more-left", left > 1);
    node.classList.toggle("more-right", node.scrollWidth - node.clientWidth - left > 1);
  };
  node.classList.add("scroller");
  for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": label })) node.setAttribute(name, value);
  node.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  for (const part of [node, ...node.children]) sizes.observe(part);
  return node;
}

// Tips: what a term means, shown on hover and on focus: the text of the nearest `data-tip`. Escape takes it away.

const tip = h("div", { id: "tip", role: "tooltip", hidden: true });

/** A term with its definition, which the keyboard reaches, too. */
const term = (text, about) => (about ? h("span", { class: "term", tabindex: "0", "data-tip": about }, text) : text);

function showTip(target) {
  const [first, ...rest] = target.dataset.tip.split("\n");
  fill(tip, h("p", {}, first), rest.map((line, i) => h("p", { class: i === rest.length - 1 ? "tip-end" : null }, line)));
  tip.hidden = false;
  const at = target.getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = Math.min(Math.max(at.left + at.width / 2 - width / 2, 8), document.documentElement.clientWidth - width - 8);
  const top = at.bottom + 6 + height > window.innerHeight && at.top > height + 6 ? at.top - height - 6 : at.bottom + 6;
  Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  const focused = document.activeElement;
  if (target.contains(focused)) focused.setAttribute("aria-describedby", "tip");
}

function hideTip() {
  tip.hidden = true;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
}

function followTips() {
  document.body.append(tip);
  const on = (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (target) showTip(target);
    else hideTip();
  };
  document.addEventListener("pointerover", on);
  document.addEventListener("focusin", on);
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  window.addEventListener("scroll", hideTip, { passive: true, capture: true });
}
