// One metric against another, each row a point with both intervals.

function tradeOff(rows, groups) {
  const { metrics } = suiteNow();
  const own = (name, other) => metrics.find((metric) => metric.key === state[name]) ?? other;
  return controlled((set) => {
    if (metrics.length < 2) return [];
    const x = own("x", metrics[0]);
    const y = own("y", metrics.find((metric) => metric !== x && !metric.secondary && metric.better !== null) ?? metrics.find((metric) => metric !== x));
    const [at, up] = [x, y].map((metric) => metrics.indexOf(metric));
    const group = groups.find((one) => String(one.number) === view.plane) ?? groups[0];
    const all = rows.filter((row) => row.group === group && measured(row, at) && measured(row, up));
    const drawn = all.slice(0, 60);
    const points = named(drawn.map((row) => ({ name: row.label, ...plane(row.cells[at], "x"), ...plane(row.cells[up], "y") })));
    const values = { rows: points, x: x.title, y: y.title, ...scaleOf(x, points, "x"), ...scaleOf(y, points, "y"), ...seriesOf(drawn, (row) => row.label) };
    const choice = (label, name, metric) => select(label, metrics.map((one) => [one.key, one.title]), metric.key, (key) => { keep(name, key); set("plane")(view.plane); });
    const none = "No row of this group has both metrics.";
    return section(
      "Trade-off",
      ["One metric against another, with 95 % intervals. ", better(x, y)].join(""),
      [choice("Across", "x", x), choice("Up", "y", y), groups.length > 1 && select("Group", groups.map((one) => [one.number, one.title]), group.number, set("plane"))],
      chart("Trade-off", "trade_off", points.length ? values : none),
      all.length > drawn.length && h("p", { class: "note" }, `${drawn.length} of ${all.length} rows are drawn; choose fewer above.`),
    );
  });
}

const plane = (cell, axis) => ({ [axis]: cell.mean, [`${axis}_low`]: cell.low, [`${axis}_high`]: cell.high, [`${axis}_text`]: shownValue(cell) });

/** Points with the texts beside them: of points that lie on one another, all names stand at the first. */
function named(points) {
  const near = (a, b) => ["x", "y"].every((axis) => {
    const values = points.map((point) => point[axis]);
    return Math.abs(a[axis] - b[axis]) <= 0.04 * (Math.max(...values) - Math.min(...values));
  });
  const heads = [];
  for (const point of points) {
    const head = heads.find((other) => near(other, point));
    point.shown = "";
    if (head) head.shown += `, ${point.name}`;
    else heads.push(Object.assign(point, { shown: point.name }));
  }
  return points;
}

/** Of perplexities that are far apart a logarithmic scale. */
function scaleOf(metric, points, axis) {
  const means = points.map((point) => point[axis]);
  const log = metric.log && Math.max(...means) > 3 * Math.min(...means);
  return log ? { [`${axis}_type`]: "log", [`${axis}_zero`]: undefined } : { [`${axis}_type`]: "linear", [`${axis}_zero`]: false };
}

function better(x, y) {
  const across = { true: "right", false: "left" }[x.better];
  const up = { true: "top", false: "bottom" }[y.better];
  const words = [up, across].filter(Boolean);
  return words.length ? `The better side is the ${words.join(" ")}.` : "";
}
