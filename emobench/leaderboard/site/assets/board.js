// The board: its table, and below it the sections of its charts.

const view = { metric: "", baseline: "", group: 0, part: "", axis: "parameters", scaled: "" };

function drawBoard() {
  const rows = visible();
  drawTable(rows);
  const shown = [...new Set(rows.map((row) => row.group))];
  byId("charts").replaceChildren(
    ...(shown.length ? [differences(rows, shown), groupPanels(rows, shown), scaling(rows)] : []),
  );
  redraw();
}

function section(title, text, controls, ...body) {
  return h(
    "section",
    { class: "panel", "aria-label": title },
    h("h2", {}, title),
    h("p", { class: "about" }, text),
    controls.some(Boolean) && h("div", { class: "controls" }, controls),
    body,
  );
}

/** A section whose controls change `view` and draw it again in its place. */
function controlled(make) {
  const host = h("div");
  const again = () => {
    const focus = [...host.querySelectorAll("select")].indexOf(document.activeElement);
    host.replaceChildren(make(set));
    host.querySelectorAll("select")[focus]?.focus();
  };
  const set =
    (name, convert = String) =>
    (value) => {
      view[name] = convert(value);
      again();
    };
  host.replaceChildren(make(set));
  return host;
}

const metricOptions = (suite) => suite.metrics.map((metric, i) => [i, metricTitle(metric)]);
const labelsOf = (rows) => [...new Set(rows.map((row) => label(row.group, row.place)))];
