
"use strict";

// Light or dark: the system's choice, unless the reader makes another. It is kept if the browser lets us.

const root = document.documentElement, button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)"), KEPT = "hw4-theme";

function theme(choice) {
  if (choice === "light" || choice === "dark") root.dataset.theme = choice; else delete root.dataset.theme;
  const dark = choice ? choice === "dark" : system.matches;
  button.textContent = dark ? "Light" : "Dark";
  button.title = "Show the page in " + (dark ? "light" : "dark") + " colours";
}

function kept(choice) {
  try {
    if (choice === undefined) return localStorage.getItem(KEPT) || "";
    if (choice) localStorage.setItem(KEPT, choice); else localStorage.removeItem(KEPT);
  } catch { /* no storage: the choice lasts as long as the page */ }
  return choice || "";
}

button.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const choice = dark ? "light" : "dark";
  theme(kept(dark !== system.matches ? "" : choice)); // back to the system's is no choice
});
system.addEventListener("change", () => theme(kept()));
theme(kept());
button.hidden = false;
