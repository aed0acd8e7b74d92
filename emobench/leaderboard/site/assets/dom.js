// Elements. What comes from an entry is always a text node or an attribute's value, never markup.

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...shown(children));
  return node;
}

const shown = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
const fill = (node, ...children) => node.replaceChildren(...shown(children));

const byId = (id) => document.getElementById(id);

/** A labelled select; `options` are [value, text] pairs. */
function select(label, options, value, changed) {
  const field = h("select", { "aria-label": label, on: { change: () => changed(field.value) } });
  field.append(
    ...options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)),
  );
  return h("label", { class: "field" }, h("span", {}, label), field);
}

function table(heads, rows, caption) {
  const cells = (row) =>
    row.map((cell, i) =>
      cell instanceof HTMLTableCellElement ? cell : h(i ? "td" : "th", i ? {} : { scope: "row" }, cell),
    );
  const numeric = (i) => rows.some((row) => row[i] instanceof HTMLTableCellElement && row[i].classList.contains("number"));
  const scroller = h(
    "div",
    { class: "scroller", tabindex: "0", role: "region", "aria-label": `${caption}, table` },
    h(
      "table",
      { class: "plain" },
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head, i) => h("th", { scope: "col", class: numeric(i) && "number" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, cells(row))),
      ),
    ),
  );
  hintScroll(scroller);
  return scroller;
}

/** Say in classes on which sides of a scroller more is hidden, for the style sheet to fade them. */
function hintScroll(scroller) {
  const look = () => {
    const left = Math.abs(scroller.scrollLeft);
    scroller.classList.toggle("more-left", left > 1);
    scroller.classList.toggle("more-right", scroller.scrollWidth - scroller.clientWidth - left > 1);
  };
  scroller.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  for (const node of [scroller, ...scroller.children]) sizes.observe(node);
}

/** A name that may be broken after its separators. */
function breakable(text) {
  return text.split(/(?<=[_/.])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
}

/** A collapsible tree of any JSON value. */
function tree(name, value, open = false) {
  if (value === null || typeof value !== "object") {
    return h(
      "div",
      { class: "leaf" },
      h("span", { class: "key" }, name),
      h("span", { class: "value" }, value === null ? "none" : String(value)),
    );
  }
  const items = Object.entries(value);
  const count = Array.isArray(value) ? `${items.length}` : "";
  if (!items.length)
    return h("div", { class: "leaf" }, h("span", { class: "key" }, name), h("span", { class: "value" }, "none"));
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")) {
    return h(
      "div",
      { class: "leaf" },
      h("span", { class: "key" }, name),
      h("span", { class: "value" }, value.join(", ")),
    );
  }
  const node = h(
    "details",
    { class: "tree", open },
    h("summary", {}, h("span", { class: "key" }, name), h("span", { class: "count" }, count)),
  );
  const grow = () => node.childElementCount === 1 && node.append(...items.map(([key, item]) => tree(key, item)));
  if (open) grow();
  else node.addEventListener("toggle", grow);
  return node;
}

/** Tell a screen reader what has changed. */
function say(text) {
  byId("said").textContent = text;
}
