// The address after # says what is shown: #/ the board, #/entry/ID, #/compare/ID/ID...

let routed = Promise.resolve();

/** Show what the address says, after what is being drawn. */
function route() {
  routed = routed.catch(() => null).then(showAddress);
  return routed;
}

async function showAddress() {
  const [path, query] = location.hash.slice(1).split("?");
  if (path && !path.startsWith("/")) return; // a place on this page
  const [, page, ...ids] = path.split("/");
  const shown = { entry: drawEntry, compare: drawCompare }[page];
  for (const name of ["board", "entry", "compare"]) byId(`view-${name}`).hidden = name !== (shown ? page : "board");
  drawSelection();
  if (shown) {
    const host = byId(`view-${page}`);
    await shown(host, ...ids);
    host.querySelector("h1").setAttribute("tabindex", "-1");
    host.querySelector("h1").focus({ preventScroll: true });
    const linked = host.querySelector("[data-linked]");
    if (linked) linked.scrollIntoView();
    else window.scrollTo(0, 0);
    return;
  }
  readAddress(query);
  await loadSuite(state.suite);
  grid?.table.destroy();
  grid = null;
  drawFilters();
  drawBoard();
}

async function start() {
  if (!byId("index")) return;
  try {
    await loadBoard();
  } catch (error) {
    fill(byId("table"), h("p", { class: "empty" }, `The entries cannot be read (${error.message}). The page needs a browser of 2024 or later.`));
    return;
  }
  // Numbers are sorted with what is absent last, whichever way.
  const side = (a, b, sign) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * (a - b));
  Object.assign(DataTable.ext.type.order, { "measure-asc": (a, b) => side(a, b, 1), "measure-desc": (a, b) => side(a, b, -1) });
  followTips();
  window.addEventListener("hashchange", route);
  await route();
  document.documentElement.dataset.ready = "yes";
}

start();
