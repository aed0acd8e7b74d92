// The address after # says what is shown: #/ the board, #/entry/ID, #/compare/ID/ID.

let lastBoard = "#/";
const boardAddress = () => lastBoard;

function show(name) {
  for (const view of ["board", "entry", "compare"]) byId(`view-${view}`).hidden = view !== name;
  if (byId("index")) drawSelection();
}

async function route() {
  const [path, query] = location.hash.slice(1).split("?");
  if (path && !path.startsWith("/")) return; // a place on this page
  const [, page, ...ids] = path.split("/");
  if (page === "entry" || page === "compare") {
    show(page);
    await (page === "entry" ? drawEntry(ids[0]) : drawCompare(ids[0], ids[1]));
    document.querySelector(`#view-${page} h1`).setAttribute("tabindex", "-1");
    document.querySelector(`#view-${page} h1`).focus({ preventScroll: true });
    window.scrollTo(0, 0);
    redraw();
  } else {
    show("board");
    recall(query || "");
    lastBoard = location.hash || "#/";
    drawFilters(() => {
      lastBoard = location.hash;
      drawBoard();
    });
    drawBoard();
  }
}

function paintTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light theme" : "Dark theme";
  redraw();
}

function startTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let own = null;
  try {
    own = localStorage.getItem("emobench-theme");
  } catch {
    // Some browsers keep nothing for files.
  }
  paintTheme(own ? own === "dark" : system.matches);
  system.addEventListener("change", (event) => own || paintTheme(event.matches));
  byId("theme").addEventListener("click", () => {
    own = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    paintTheme(own === "dark");
    try {
      localStorage.setItem("emobench-theme", own);
    } catch {
      // The choice then lasts until the page is closed.
    }
  });
}

async function start() {
  startTheme();
  if (!byId("index")) return;
  try {
    await loadBoard();
  } catch (error) {
    byId("table").replaceChildren(
      h(
        "p",
        { class: "empty" },
        `The entries cannot be read (${error.message}). The page needs a browser of 2024 or later.`,
      ),
    );
    return;
  }
  orderable();
  window.addEventListener("hashchange", route);
  await route();
  document.documentElement.dataset.ready = "yes";
}

start();
