"""What is wrong with a page as a browser shows it: text that is cut, colours that cannot be read, controls and tables
that a screen reader has no name for."""

from browser import COLOURS

FAULTS = """
const [scrolling, clamped] = arguments, found = new Set();
const ends = animation => animation.effect.getTiming().iterations !== Infinity;
for (const animation of document.getAnimations().filter(ends)) animation.finish();
const named = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + [...e.classList].map(c => "." + c).join("")
  + " '" + e.textContent.trim().slice(0, 40) + "'";
const is = (e, selector) => Boolean(selector) && Boolean(e.closest(selector));
const ground = e => {
  const stack = [];
  for (let x = e; x; x = x.parentElement) stack.push(numbers(getComputedStyle(x).backgroundColor));
  return stack.reverse().reduce((below, colour) => over(colour, below), [255, 255, 255]);
};
const ancestors = function* (e) { for (let x = e; x && x !== document.documentElement; x = x.parentElement) yield x; };
const outside = e => [...ancestors(e)].some(x => getComputedStyle(x).clipPath === "inset(50%)"); // to be read out alone

const width = document.documentElement.scrollWidth;
if (width > innerWidth) found.add("the page scrolls to " + width + " px");
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement, svg = e.closest("svg");
  if (!node.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "title", "desc"].includes(e.tagName)) continue;
  if (!e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) || outside(e)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const at = range.getBoundingClientRect(), style = getComputedStyle(e);
  if (!at.width) continue;
  const below = ground(svg ? svg.parentElement : e);
  const alpha = [...ancestors(e)].reduce((all, x) => all * getComputedStyle(x).opacity, 1);
  const [r, g, b, a = 1] = numbers(svg ? style.fill : style.color);
  const ratio = contrast(over([r, g, b, a * alpha], below), below);
  if (ratio < 4.5) found.add("contrast " + ratio.toFixed(1) + " of " + named(e));
  for (const x of ancestors(svg || e)) {
    const box = x.getBoundingClientRect(), { overflowX, overflowY } = getComputedStyle(x);
    const clips = ["hidden", "clip"], scrolls = ["auto", "scroll"];
    const wide = at.right > box.right + 1 || at.left < box.left - 1;
    const tall = at.bottom > box.bottom + 2 || at.top < box.top - 2;
    const cut = wide && clips.includes(overflowX) || tall && clips.includes(overflowY);
    if (cut && !is(e, clamped)) found.add("cut: " + named(e));
    if (wide && scrolls.includes(overflowX)) {
      if (!is(e, scrolling)) found.add("scrolled out of sight: " + named(e));
      if (x.tabIndex < 0) found.add("scrolls, but not by keyboard: " + named(x));
      break;
    }
    if (x === document.body && (at.right > innerWidth + 1 || at.left < -1)) found.add("beside the page: " + named(e));
  }
}

if (!document.documentElement.lang) found.add("no language");
if (!document.title) found.add("no title");
if (document.querySelectorAll("h1").length !== 1) found.add(document.querySelectorAll("h1").length + " h1");
if (document.querySelectorAll("main").length !== 1) found.add(document.querySelectorAll("main").length + " main");
let level = 0;
for (const h of [...document.querySelectorAll("h1, h2, h3, h4, h5")].filter(h => h.checkVisibility())) {
  if (Number(h.tagName[1]) > level + 1) found.add("a heading leaves out a level: " + named(h));
  level = Number(h.tagName[1]);
}
for (const table of document.querySelectorAll("table")) if (table.checkVisibility()) {
  if (!table.querySelector("th") && !table.closest("#tip")) found.add("a table without headings: " + named(table));
  for (const th of table.querySelectorAll("th")) if (!th.scope) found.add("no scope: " + named(th));
}
for (const svg of document.querySelectorAll("svg"))
  if (!svg.closest("[aria-hidden], [aria-label]") && !svg.querySelector(":scope > title"))
    found.add("no name: " + named(svg));
for (const image of document.images) if (!image.alt) found.add("no alt: " + image.src.slice(0, 60));
for (const control of document.querySelectorAll("button, select, input, a[href], summary"))
  if (control.checkVisibility() && !(control.textContent.trim() || control.ariaLabel || control.labels?.length))
    found.add("no name: " + named(control));
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) found.add("twice: #" + id);
return [...found].sort();
"""


def faults(browser, scrolling="", clamped=""):
    """The faults of the page as it is now. What `scrolling` selects may be scrolled to the side by itself, as a table
    of all cases; what `clamped` selects may end in an ellipsis, as a name of 300 letters."""
    return browser.execute_script(COLOURS + FAULTS, scrolling, clamped)
