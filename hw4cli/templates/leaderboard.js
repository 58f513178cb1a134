
// A user's panel is the target of the page's address: a link can lead to it, and the browser's Back closes it. Without
// this script it opens and closes all the same, but the keyboard stays where it was.
let from = null; // the link that opened the panel

function follow() {
  const panel = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (panel && panel.matches(".panel")) panel.focus({ preventScroll: true });
}

function close() {
  if (!document.querySelector(".panel:target")) return;
  const place = scrollY;
  location.hash = "#top";
  scrollTo(0, place);
  if (from) from.focus({ preventScroll: true });
}

document.addEventListener("click", event => {
  const link = event.target.closest("a");
  if (!link) return;
  if (link.matches(".close")) { event.preventDefault(); close(); return; }
  if (link.closest("tbody")) from = link;
});
document.addEventListener("keydown", event => { if (event.key === "Escape") close(); });
addEventListener("hashchange", follow);
follow();
