
// Without this script the table stands as it is, in the order of the ranks: reasons are shown on hover, a name opens its
// panel, the colours are the system's.
const table = document.querySelector("table"), body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells], box = document.querySelector(".scroll");
const tip = document.getElementById("tip"), names = new Intl.Collator(undefined, { numeric: true });
let shown = null, mouse = ""; // the element whose title the tip shows in its place; where the mouse was

// The tip: a title, shown for mouse, finger and keyboard alike.

function hide() {
  if (!shown) return;
  shown.title = tip.lastChild.textContent;
  shown.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}

function show(element) {
  if (element === shown) return;
  hide();
  if (!element || !element.title) return;
  const row = element.closest("tbody tr"), of = element.matches(".c") ? ", " + heads[element.cellIndex].textContent : "";
  tip.firstChild.textContent = row ? user(row) + of : "";
  tip.lastChild.textContent = element.title;
  shown = element;
  shown.removeAttribute("title"); // or the browser would show it, too
  shown.setAttribute("aria-describedby", "tip");
  tip.hidden = false;
  place();
}

function place() {
  if (!shown) return;
  const at = shown.getBoundingClientRect(), below = at.bottom + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(0, below ? at.bottom : at.top - tip.offsetHeight) + "px";
}

function user(row) { return row.querySelector("bdi").textContent; }

// The order of the rows.

function value(row, column) {
  const cell = row.cells[column];
  if (!cell || column > 6 && !cell.matches(".c")) return undefined; // a note stands there
  if (!column) return user(row);
  const number = cell.dataset.v ?? parseFloat(cell.textContent.replace("~", ""));
  return isNaN(number) ? undefined : number;
}

function sort(head) {
  const first = head.dataset.first || "ascending", column = heads.indexOf(head);
  const now = head.getAttribute("aria-sort"), order = now !== first ? first : first === "ascending" ? "descending" : "ascending";
  const sign = order === "ascending" ? 1 : -1, compare = (a, b) => column ? a - b : names.compare(a, b);
  const rows = [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place).map(row => [value(row, column), row]);
  rows.sort(([a], [b]) => a === undefined || b === undefined // what has no value comes last either way
    ? (a === undefined) - (b === undefined) : sign * compare(a, b));
  body.append(...rows.map(([, row]) => row));
  heads.forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", order);
}

heads.forEach(head => {
  const button = document.createElement("button");
  button.type = "button";
  button.title = head.firstChild.title;
  head.firstChild.removeAttribute("title");
  button.append(head.firstChild);
  button.addEventListener("click", () => sort(head));
  head.replaceChildren(button);
});

// The keyboard in the table: one cell at a time is a stop of the Tab key; the arrows move it.

function visit(cell) {
  body.querySelectorAll("[tabindex='0']").forEach(other => other.removeAttribute("tabindex"));
  cell.tabIndex = 0;
}

function beside(row, direction) { // the next row that is not filtered away
  do row = row[direction]; while (row && row.hidden);
  return row;
}

table.setAttribute("role", "grid");
body.querySelectorAll("a").forEach(link => { link.tabIndex = -1; });
if (body.rows.length) visit(body.rows[0].cells[0]);

body.addEventListener("click", event => {
  const cell = event.target.closest("th, td");
  visit(cell);
  if (event.target.closest("a")) return; // it opens the panel
  if (cell.matches("th, .rank, .passed")) { open(cell.parentElement); return; }
  cell.focus({ preventScroll: true });
  show(cell);
});
body.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own
  const cell = event.target.closest("th, td"), row = cell.parentElement, last = row.cells.length - 1;
  if (event.key === "Enter") { event.preventDefault(); open(row); return; }
  const across = { ArrowLeft: cell.cellIndex - 1, ArrowRight: cell.cellIndex + 1, Home: 0, End: last }[event.key];
  const lines = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
  const line = lines && beside(row, lines);
  const next = lines ? line && line.cells[Math.min(cell.cellIndex, line.cells.length - 1)] : row.cells[across];
  if (across !== undefined || lines) event.preventDefault();
  if (next) { visit(next); next.focus(); next.scrollIntoView({ block: "nearest", inline: "nearest" }); }
});
table.addEventListener("focusin", event => show(event.target));
table.addEventListener("focusout", hide);
document.addEventListener("mousemove", event => {
  const where = event.screenX + " " + event.screenY; // if it is the same, the page moved, not the mouse
  if (where !== mouse && !tip.contains(event.target)) show(event.target.closest("[title], [aria-describedby='tip']"));
  mouse = where;
});

// A user's panel is the target of the page's address: so a link can lead to it, and the browser's Back closes it.

function link(row) { return row.cells[0].querySelector("a"); }

function open(row) { location.hash = link(row).hash; }

function close() {
  const row = body.querySelector(".open");
  if (!row) return false;
  location.hash = "#all";
  visit(row.cells[0]);
  row.cells[0].focus({ preventScroll: true });
  hide();
  return true;
}

function follow() {
  const id = location.hash.slice(1), panel = id && document.getElementById(id);
  body.querySelectorAll(".open").forEach(row => row.classList.remove("open"));
  const row = panel && [...body.rows].find(one => link(one).hash === location.hash);
  if (row) {
    row.classList.add("open");
    row.hidden = false;
    visit(row.cells[0]);
    const low = matchMedia("(max-width: 40rem)").matches; // where the panel rises from below
    row.cells[0].scrollIntoView({ block: low ? "start" : "nearest", inline: "nearest" });
    hide();
    if (!panel.contains(document.activeElement)) panel.focus({ preventScroll: true }); // the reader may have gone on
  }
  mark(row);
  measure();
}

function mark(row) { // a user's dots in the chart
  document.querySelectorAll(".dots .me").forEach(dots => dots.classList.remove("me"));
  const dots = row && document.getElementById(link(row).hash.slice(1) + "-dots");
  if (!dots) return;
  dots.classList.add("me");
  dots.parentElement.append(dots); // above the others
}

document.querySelectorAll(".close").forEach(cross => cross.addEventListener("click", event => {
  event.preventDefault();
  close();
}));
addEventListener("hashchange", follow);
button.addEventListener("click", hide, true); // before its title changes
body.addEventListener("mouseover", event => mark(event.target.closest("tr")));
body.addEventListener("mouseleave", () => mark(body.querySelector(".open")));
body.addEventListener("focusin", event => mark(event.target.closest("tr")));
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !shown && event.target !== search) close();
  if (event.key === "Escape") hide();
});

// The search: letters without their marks and cases, so that "jose" finds José.

const search = document.getElementById("search"), found = document.getElementById("found");
const plain = text => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

function filter() {
  const words = plain(search.value).split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of body.rows) {
    const name = plain(user(row));
    row.hidden = !words.every(word => name.includes(word));
    count += !row.hidden;
  }
  found.textContent = !words.length ? "" : count ? count + " of " + body.rows.length : "nobody of that name";
  const first = [...body.rows].find(row => !row.hidden), stop = body.querySelector("[tabindex='0']");
  if (first && stop && stop.parentElement.hidden) visit(first.cells[0]);
  measure();
}

search.closest("label").hidden = body.rows.length < 2;
search.addEventListener("input", filter);
search.addEventListener("keydown", event => {
  if (event.key === "Escape") { search.value = ""; filter(); }
});

// The fade at the table's edge says that there is more beyond it.

function measure() {
  const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
  box.parentElement.classList.toggle("whole", rest < 2);
  box.parentElement.style.setProperty("--bar-right", box.offsetWidth - box.clientWidth - 2 + "px"); // the scroll bars
  box.parentElement.style.setProperty("--floor", box.offsetHeight - box.clientHeight - 2 + "px");
}

document.addEventListener("scroll", () => { place(); measure(); }, true);
addEventListener("resize", () => { place(); measure(); });
new ResizeObserver(measure).observe(box); // with the first layout: asking for sizes now would make the page wait for it
if (location.hash) follow();
