// Drawing: a chart is made when it comes near the window, and again when the theme or the width changes.

const charts = new Map();
const near = new IntersectionObserver(
  (seen) => {
    for (const item of seen) {
      if (!item.isIntersecting) continue;
      near.unobserve(item.target);
      draw(item.target);
    }
  },
  { rootMargin: "400px" },
);

/** A place for a chart; `make(width)` returns a specification, or a sentence where there is nothing to draw. */
function chart(name, make) {
  const host = h("div", { class: "chart", role: "group", "aria-label": name, tabindex: "0" });
  charts.set(host, { make, view: null });
  near.observe(host);
  return host;
}

async function draw(host) {
  const found = charts.get(host);
  if (!found) return;
  const width = host.clientWidth;
  found.width = width;
  const spec = await found.make(width);
  if (!host.isConnected) return;
  found.view?.finalize();
  if (typeof spec === "string") {
    host.replaceChildren(h("p", { class: "empty" }, spec));
    return;
  }
  const inner = h("div");
  host.replaceChildren(inner);
  // Expressions are interpreted (`ast`), so that the page's policy need not allow code that is made from text.
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true,
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  found.view = await window.vegaEmbed(inner, themed(spec), options);
  host.dataset.drawn = "yes";
}

function redraw(changed = () => true) {
  for (const [host, found] of charts) {
    if (!host.isConnected) {
      found.view?.finalize();
      charts.delete(host);
    } else if (changed(host, found)) {
      near.unobserve(host);
      near.observe(host);
    }
  }
}

// What was never near the window is drawn for paper.
window.addEventListener("beforeprint", () => {
  for (const host of charts.keys()) if (host.clientWidth && !host.dataset.drawn) draw(host);
});

let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => redraw((host, found) => Math.abs(host.clientWidth - found.width) > 24), 150);
});
