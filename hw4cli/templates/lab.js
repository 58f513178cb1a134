"use strict";
// The state is what the controls say; `state` holds it by name, the address's fragment keeps what differs from FIRST,
// and `draw` makes the page anew from it.
const data = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id), unique = list => [...new Set(list)], last = list => list[list.length - 1];
const points = data.points.map(values => Object.fromEntries(data.fields.map((field, i) => [field, values[i]])));
const FIRST = { view: "compare", gpu: data.gpus.length ? data.gpus[0].name : "", record: "", d: "", dtype: "", causal: "", pass: "", measure: "ms", over: "", scale: "",
  nscale: "log", at: "", base: "", off: "", sort: "", rungs: "", cells: "tflops", programs: "", kernel: "", diff: "", file: "",
  shape: "", cc: "", mask: "", order: "", block: "", row: "", thread: "", step: "", timeline: "", stride: "", wide: "" };
const state = { ...FIRST };
const PHONE = 640, WHOLE = { style: "decimal", maximumFractionDigits: 0 };

// ---- words and numbers
const grouped = x => x.toLocaleString("en", WHOLE);
const digits = (x, n) => Math.abs(x) >= 1000 ? grouped(x) : Number(x.toPrecision(n)).toString();
const tiny = x => x ? x.toExponential(1) : "0";
const times = ratio => "\u00d7" + digits(ratio, 3);
const shape = p => "(" + p.B + ", " + p.N + ", " + p.d + ")";
const named = p => p.case === p.B + "x" + p.N + "x" + p.d ? "" : p.case;
const where = p => (named(p) + " " + shape(p)).trim();
const short = gpu => data.gpus.find(one => one.name === gpu).short;
const place = p => p.B + "," + p.N + "," + p.d;

// ---- elements
function el(tag, props, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "own") made.style.setProperty("--own", colour(value));
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside.flat().filter(one => one !== null && one !== undefined));
  return made;
}
function svg(tag, props, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props || {})) if (value !== null && value !== undefined) made.setAttribute(name, value);
  made.append(...inside.flat());
  return made;
}
const colour = name => "var(--c" + data.names.indexOf(name) + ")";
const cut = name => name.length > 26 ? "\u2026" + name.slice(-25) : name; // of a path, its end
const peer = name => name.includes(" ") && !name.endsWith(".cu");
function mark(name, x, y, size, hollow) {
  const i = Math.max(0, data.names.indexOf(name)) % 6, s = size, fill = hollow ? "var(--paper)" : colour(name);
  const shapes = [null, "M-1,-1H1V1H-1Z", "M0,-1.25L1.25,0L0,1.25L-1.25,0Z", "M0,-1.2L1.15,.9H-1.15Z", "M0,1.2L1.15,-.9H-1.15Z", "M-.4,-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z"];
  const at = "translate(" + x.toFixed(2) + " " + y.toFixed(2) + ")", props = { fill, stroke: colour(name), "stroke-width": hollow ? 1.5 : 0 };
  return i ? svg("path", { d: shapes[i], transform: at + " scale(" + s * .9 + ")", ...props, "stroke-width": hollow ? 1.5 / s : 0 })
    : svg("circle", { r: s, transform: at, ...props });
}
function refill(host, inside) { // what has the focus keeps it
  const key = host.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  host.replaceChildren(...inside);
  if (key !== undefined) [...host.querySelectorAll("[data-key]")].find(one => one.dataset.key === key)?.focus();
}
function options(id, choices, chosen) { // a select with one choice chooses nothing, and is not shown
  const select = get(id), same = JSON.stringify(choices);
  if (select.dataset.same !== same) {
    select.replaceChildren(...choices.map(([value, text]) => el("option", { value }, text)));
    select.dataset.same = same;
  }
  select.value = chosen;
  select.closest("label").hidden = choices.length < 2;
}
function segments(id, choices, chosen, also) {
  refill(get(id), choices.map(([value, text]) => el("button", { type: "button", "data-key": value, "aria-pressed": String(value === chosen),
    onclick: () => change({ ...also, [id]: value }) }, text)));
}

// ---- state and address
function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(FIRST)) state[name] = given.get(name) ?? FIRST[name];
}
function change(some) {
  Object.assign(state, some);
  const kept = Object.entries(state).filter(([name, value]) => value !== FIRST[name]);
  const hash = new URLSearchParams(kept).toString();
  history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  draw();
}
const hidden = () => new Set(state.off ? state.off.split(",") : []);

// ---- measures
const atBase = p => p && shown.base.get(place(p));
const MEASURES = {
  ms: { name: "time, ms", unit: "ms", log: true, value: p => p.ms, ends: p => [p.low, p.high], text: v => digits(v, 4) },
  tflops: { name: "rate, TFLOP/s", unit: "TFLOP/s", value: p => p.tflops, ends: rateEnds, text: v => digits(v, 4), roof: r => r.sgemm, roofName: "cuBLAS SGEMM" },
  sgemm: { name: "rate, % of cuBLAS SGEMM", unit: "%", value: p => p.sgemm_percent, ends: rateEnds, text: v => digits(v, 3), roof: r => r.sgemm && 100, roofName: "cuBLAS SGEMM" },
  gbs: { name: "Q, K, V and O, GB/s", unit: "GB/s", value: p => p.gb_per_s, ends: rateEnds, text: v => digits(v, 3), roof: r => r.copy, roofName: "copy" },
  times: { name: "speed-up", unit: "\u00d7", log: true, value: p => atBase(p) && atBase(p).ms / p.ms, ends: (p, v) => [v * p.ms / p.high * atBase(p).low / atBase(p).ms, v * p.ms / p.low * atBase(p).high / atBase(p).ms],
    text: v => digits(v, 3), roof: () => 1, roofName: "" },
  error: { name: "largest error", unit: "", log: true, value: p => p.max_error || null, text: tiny, roof: () => data.tolerance, roofName: "tolerance" },
};
function rateEnds(p, v) { return [v * p.ms / p.high, v * p.ms / p.low]; }

// ---- what is chosen
let shown = null; // of the compare view: its points, workloads, kernels, and the point of the base on each workload
function choose() {
  const gpu = data.records.find(r => r.name === state.record)?.gpu ?? (data.gpus.some(one => one.name === state.gpu) ? state.gpu : data.gpus[0].name);
  const records = data.records.map((record, i) => ({ ...record, i })).filter(r => r.gpu === gpu && points.some(p => p.record === r.i && !p.tile));
  const record = records.some(r => r.name === state.record) ? state.record : "";
  const used = records.filter(r => !record || r.name === record);
  const work = p => [place(p), p.dtype, p.causal, p.pass].join(), held = new Map(), ranks = new Map(used.map((r, i) => [r.i, i]));
  const own = points.filter(p => ranks.has(p.record) && !p.tile), date = p => data.records[p.record].date;
  for (const p of own) held.set(p.record + work(p), (held.get(p.record + work(p)) || 0) + 1);
  // Of a kernel on a workload that several records have, the newest counts; on one day, that of the fuller record there.
  own.sort((a, b) => (date(a) > date(b)) - (date(a) < date(b)) || held.get(a.record + work(a)) - held.get(b.record + work(b)) || ranks.get(a.record) - ranks.get(b.record));
  const newest = new Map(own.map(p => [p.kernel + " " + work(p), p]));
  let chosen = [...newest.values()];
  const facets = {};
  for (const name of ["d", "dtype", "causal", "pass"]) {
    const values = unique(chosen.map(p => String(p[name]))).sort((a, b) => a - b || (a < b ? -1 : 1));
    const most = [...values].reverse().sort((a, b) => chosen.filter(p => String(p[name]) === b).length - chosen.filter(p => String(p[name]) === a).length)[0];
    facets[name] = { values, value: values.includes(state[name]) ? state[name] : most };
    chosen = chosen.filter(p => String(p[name]) === facets[name].value);
  }
  const sweeps = ["B", "B\u00b7N"].flatMap(what => {
    const fixed = p => what === "B" ? p.B : p.B * p.N;
    return unique(chosen.map(fixed)).map(value => ({ key: what + "=" + value, name: "N, at " + what + " = " + grouped(value),
      points: chosen.filter(p => fixed(p) === value) })).filter(sweep => unique(sweep.points.map(p => p.N)).length > 2);
  }).sort((a, b) => b.points.length - a.points.length);
  const fit = state.over === "cases" ? null : sweeps.find(s => s.key === state.over) || (sweeps[0] && 2 * sweeps[0].points.length >= chosen.length ? sweeps[0] : null);
  if (fit) chosen = fit.points;
  const size = p => fit ? p.N : p.B * p.N * p.N; // so that times rise from left to right
  const workloads = [...new Map(chosen.map(p => [place(p), p])).values()].sort((a, b) => size(a) - size(b) || a.N - b.N);
  const order = name => { const i = data.names.indexOf(name); return i < 0 ? 1e9 : i; };
  const kernels = unique(chosen.map(p => p.kernel)).sort((a, b) => order(a) - order(b));
  const off = hidden();
  const on = kernels.some(k => !off.has(k)) ? kernels.filter(k => !off.has(k)) : kernels;
  const at = workloads.find(w => place(w) === state.at) || mostMeasured(workloads, chosen);
  const bases = kernels.filter(k => chosen.some(p => p.kernel === k && place(p) === place(at)));
  const base = kernels.includes(state.base) ? state.base : bases[0];
  const basePoints = new Map(chosen.filter(p => p.kernel === base).map(p => [place(p), p]));
  shown = { gpu, records, record, used, facets, sweeps, fit, points: chosen, workloads, kernels, on, at, baseName: base, base: basePoints };
}
function mostMeasured(workloads, chosen) { // of those with the most kernels, the one with the most work
  const count = w => chosen.filter(p => place(p) === place(w)).length, work = w => w.B * w.N * w.N;
  return [...workloads].sort((a, b) => count(b) - count(a) || work(b) - work(a))[0];
}

// ---- scales
function logScale(low, high, from, to) {
  const a = Math.log(low), b = Math.log(high), scale = v => from + (to - from) * (b > a ? (Math.log(v) - a) / (b - a) : .5);
  const decades = (b - a) / Math.LN10, steps = decades < 2.2 ? [1, 2, 5] : decades < 4 ? [1, 3] : [1];
  scale.ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const s of steps) { const v = Number((s + "e" + e)); if (v >= low * .999 && v <= high * 1.001) scale.ticks.push(v); }
  return scale;
}
function linearScale(high, from, to) {
  const rough = high / 7, power = 10 ** Math.floor(Math.log10(rough)), step = power * [1, 2, 5, 10].find(s => s * power >= rough);
  const scale = v => from + (to - from) * v / high;
  scale.ticks = [];
  for (let i = 0; i * step <= high * 1.0001; i++) scale.ticks.push(Number((i * step).toPrecision(12)));
  return scale;
}
const LABEL = 15; // px from one curve's name to the next
const tickText = v => v !== 0 && v < 1e-2 ? v.toExponential(0) : v >= 1000 ? grouped(v) : String(v);
const wide = text => text.length * 6.7; // of 12 px letters, about

// ---- the chart over N, or from case to case
let columns = []; // of the chart: x of each workload
function drawChart() {
  const host = get("chart"), measure = MEASURES[state.measure] || MEASURES.ms, log = state.scale ? state.scale === "log" : Boolean(measure.log);
  const W = Math.max(280, host.clientWidth), phone = W < PHONE, byN = shown.fit && unique(shown.workloads.map(w => w.N)).length === shown.workloads.length;
  const lines = shown.on.map(name => ({ name, marks: shown.points.filter(p => p.kernel === name && measure.value(p)).map(p => {
    const v = measure.value(p), [low, high] = measure.ends ? measure.ends(p, v) : [v, v];
    return { p, v, low, high, i: shown.workloads.findIndex(w => place(w) === place(p)) };
  }).sort((a, b) => a.i - b.i) })).filter(line => line.marks.length);
  const all = lines.flatMap(line => line.marks);
  if (!all.length) { host.replaceChildren(el("p", { class: "hint" }, "The records hold no " + measure.name + " here.")); columns = []; return; }
  const roofs = unique(shown.used.map(r => measure.roof ? measure.roof(r) : null).filter(Boolean)), roof = roofs.length ? Math.max(...roofs) : null;
  const right = phone ? 14 : 24 + Math.max(...lines.map(line => wide(cut(line.name)))), left = 62, top = 26;
  const short = w => named(w).length && named(w).length <= 12 ? named(w) : w.B + "\u00d7" + w.N, texts = shown.workloads.map(w => byN ? grouped(w.N) : short(w));
  const inner = W - left - right, turned = inner / texts.length < Math.max(...texts.map(wide)) + 6 && !byN, bottom = turned ? 30 + .75 * Math.max(...texts.map(wide)) : 46;
  const H = phone ? 300 : Math.max(400, top + 8 + LABEL * lines.length + bottom); // each curve's name has a line of its own
  const values = [...all.flatMap(m => [m.low, m.high]), ...(roof && (log || roof < 3 * Math.max(...all.map(m => m.high))) ? [roof] : [])];
  const least = Math.min(...values), most = Math.max(...values);
  const y = log ? logScale(least / 1.25, most * 1.25, H - bottom, top) : linearScale(most * 1.06, H - bottom, top);
  const Ns = shown.workloads.map(w => w.N), pad = 18;
  const x = byN ? (state.nscale === "log" ? N => left + pad + (inner - 2 * pad) * (Ns.length > 1 ? Math.log(N / Ns[0]) / Math.log(last(Ns) / Ns[0]) : .5)
    : N => left + pad + (inner - 2 * pad) * N / last(Ns)) : null;
  columns = shown.workloads.map((w, i) => byN ? x(w.N) : left + inner * (i + .5) / shown.workloads.length);
  const art = svg("svg", { viewBox: "0 0 " + W + " " + H, width: W, height: H, "aria-hidden": "true" });
  const half = byN ? 9 : Math.min(22, inner / texts.length / 2), here = shown.workloads.indexOf(shown.at);
  if (here >= 0) art.append(svg("rect", { class: "here", x: columns[here] - half, y: top, width: 2 * half, height: H - bottom - top, rx: 4 }));
  for (const t of y.ticks) art.append(svg("line", { class: "grid", x1: left, x2: W - right, y1: y(t), y2: y(t) }), svg("text", { class: "soft", x: left - 8, y: y(t) + 4, "text-anchor": "end" }, tickText(t)));
  art.append(svg("text", { x: 2, y: 13 }, measure.name + (state.measure === "times" ? " over " + shown.baseName : "") + (log ? ", log" : "")));
  art.append(svg("line", { class: "axis", x1: left, x2: W - right, y1: H - bottom, y2: H - bottom }));
  let free = -1e9;
  columns.forEach((cx, i) => {
    const strong = i === here ? "600" : null, room = Math.abs(cx - columns[here]) >= LABEL || i === here;
    if (turned && cx >= free && room) free = cx + LABEL;
    else if (turned) return;
    if (turned) art.append(svg("text", { transform: "translate(" + (cx + 4) + " " + (H - bottom + 14) + ") rotate(-45)", "text-anchor": "end", "font-weight": strong }, texts[i]));
    else if (cx - wide(texts[i]) / 2 > free || i === here) { art.append(svg("text", { x: cx, y: H - bottom + 18, "text-anchor": "middle", "font-weight": strong }, texts[i])); free = cx + wide(texts[i]) / 2 + 6; }
  });
  art.append(svg("text", { class: "soft", x: W - right, y: H - 4, "text-anchor": "end" }, byN ? shown.fit.name + ", d = " + shown.facets.d.value : "workloads by B\u00b7N\u00b2, d = " + shown.facets.d.value));
  if (roof && y(roof) >= top - 1) {
    const label = measure.roofName && (measure.roofName + " " + measure.text(roof) + " " + measure.unit).trim();
    const crowd = (from, to) => Math.min(...all.filter(m => columns[m.i] > from && columns[m.i] < to).map(m => Math.abs(y(m.v) - y(roof) + 10)), H);
    const begins = left + 6, ends = W - right - half - 12, size = wide(label); // the label stands where fewer marks are
    const end = crowd(begins, begins + size) < crowd(ends - size, ends) ? { x: ends, "text-anchor": "end" } : { x: begins };
    art.append(svg("line", { class: "roof", x1: left, x2: W - right, y1: y(roof), y2: y(roof) }), svg("text", { class: "soft halo", y: y(roof) - 5, ...end }, label));
  }
  const copy = Math.max(...shown.used.map(r => r.copy || 0));
  if (state.measure === "tflops" && copy) { // what moving Q, K, V and O once allows, where it is in sight
    const limits = shown.workloads.map((w, i) => { const p = shown.points.find(one => place(one) === place(w) && one.gb_per_s); return [columns[i], p && copy * p.tflops / p.gb_per_s]; })
      .filter(([, v]) => v && v <= most * (log ? 1.25 : 1.06));
    for (const [cx, v] of limits) art.append(svg("line", { class: "axis", x1: cx - half, x2: cx + half, y1: y(v), y2: y(v), "stroke-width": 1.5 }));
    if (limits.length) art.append(svg("text", { class: "soft halo", x: limits[0][0] - half, y: y(limits[0][1]) - 5 }, "copy " + grouped(copy) + " GB/s"));
  }
  const ends = [];
  for (const line of lines) {
    const at = line.marks.map(m => [columns[m.i], y(m.v)]), style = (byN ? "" : "guide ") + (peer(line.name) ? "peer" : "");
    const joined = i => i && (byN || line.marks[i].i === line.marks[i - 1].i + 1) ? "L" : "M"; // not over a workload that lacks
    art.append(svg("path", { class: style, d: at.map((one, i) => joined(i) + one.map(c => c.toFixed(1)).join()).join(""), fill: "none", stroke: colour(line.name), "stroke-width": byN ? 2 : 1.5 }));
    for (const m of line.marks) art.append(svg("line", { x1: columns[m.i], x2: columns[m.i], y1: y(m.low), y2: y(m.high), stroke: colour(line.name), "stroke-width": 1.5 }));
    line.marks.forEach((m, i) => art.append(mark(line.name, at[i][0], at[i][1], (m.i === here ? 5.5 : 4) * (phone ? .75 : 1), peer(line.name))));
    ends.push({ name: line.name, x: last(at)[0], y: last(at)[1] });
  }
  if (!phone) { // names at the ends, apart from each other
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { end.at = Math.max(end.y, i ? ends[i - 1].at + LABEL : top + 4); });
    for (let i = ends.length - 1, limit = H - bottom; i >= 0; i--) { ends[i].at = Math.min(ends[i].at, limit); limit = ends[i].at - LABEL; }
    for (const end of ends) {
      if (end.x < W - right - 40 || Math.abs(end.at - end.y) > 12) art.append(svg("line", { class: "leader", x1: end.x + 7, y1: end.y, x2: W - right + 6, y2: end.at, stroke: colour(end.name) }));
      art.append(svg("text", { x: W - right + 10, y: end.at + 4, fill: colour(end.name) }, cut(end.name)));
    }
  }
  host.replaceChildren(art);
  const w = shown.at;
  host.setAttribute("aria-valuemin", 1); host.setAttribute("aria-valuemax", shown.workloads.length); host.setAttribute("aria-valuenow", here + 1);
  host.setAttribute("aria-valuetext", where(w) + ": " + figures(w, measure).map(([name, text]) => name + " " + text).join(", "));
}
function figures(w, measure) { // each kernel's value on a workload, from high to low
  return shown.on.map(name => shown.points.find(p => p.kernel === name && place(p) === place(w))).filter(p => p && measure.value(p))
    .sort((a, b) => measure.value(b) - measure.value(a)).map(p => [p.kernel, measure.text(measure.value(p)) + (measure.unit && " " + measure.unit), p]);
}
function nearest(event) {
  const box = get("chart").getBoundingClientRect(), x = event.clientX - box.left;
  return columns.length ? columns.reduce((best, c, i) => Math.abs(c - x) < Math.abs(columns[best] - x) ? i : best, 0) : -1;
}
function showTip(event) {
  const i = nearest(event), tip = get("tip"), w = shown.workloads[i];
  if (!w) return;
  const measure = MEASURES[state.measure] || MEASURES.ms;
  tip.replaceChildren(el("b", {}, where(w)), el("table", {}, el("tbody", {}, figures(w, measure).map(([name, text, p]) => el("tr", {}, el("td", {}, name), el("td", {}, text),
    el("td", {}, measure.ends ? "\u00b1" + (50 * (p.high - p.low) / p.ms).toPrecision(2) + " %, n = " + p.samples : data.records[p.record].name))))));
  tip.hidden = false;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(8, event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18) + "px";
}

// ---- the compare view
function drawCompare() {
  const f = shown.facets, words = { dtype: v => v, causal: v => v === "true" ? "causal" : "full", pass: v => v, d: v => v };
  options("gpu", data.gpus.map(one => [one.name, one.name]), shown.gpu);
  options("record", [["", "all of this GPU"], ...shown.records.map(r => [r.name, r.name])], shown.record);
  for (const name of Object.keys(f)) options(name, f[name].values.map(v => [v, words[name](v)]), f[name].value);
  const has = Object.entries(MEASURES).filter(([, m]) => shown.points.some(p => m.value(p)));
  options("measure", has.map(([key, m]) => [key, m.name]), state.measure);
  options("over", [...shown.sweeps.map(s => [s.key, s.name]), ["cases", "all workloads"]], shown.fit ? shown.fit.key : "cases");
  const measure = MEASURES[state.measure] || MEASURES.ms;
  segments("scale", [["log", "log"], ["linear", "linear"]], state.scale || (measure.log ? "log" : "linear"));
  segments("nscale", [["log", "log"], ["linear", "linear"]], state.nscale);
  get("places").hidden = !shown.fit;
  refill(get("legend"), shown.kernels.map(name => el("li", {}, el("button", { type: "button", "data-key": name, "aria-pressed": String(shown.on.includes(name)), onclick: () => toggle(name) },
    svg("svg", { class: "swatch", viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(name, 0, 0, 4.5, peer(name))), name))));
  options("at", shown.workloads.map(w => [place(w), where(w)]), place(shown.at));
  options("base", shown.kernels.map(name => [name, name]), shown.baseName);
  get("method").textContent = unique(shown.used.map(r => r.method)).join(" \u00b7 ") + " \u00b7 whiskers: 95 % interval of the median";
  drawChart();
  drawCards();
  drawTable();
}
function toggle(name) { // one stays
  const off = new Set(shown.kernels.filter(k => !shown.on.includes(k)));
  if (off.has(name)) off.delete(name); else off.add(name);
  if (off.size < shown.kernels.length) change({ off: [...off].join() });
}
const mb = v => v >= 1000 ? digits(v / 1000, 3) + " GB" : digits(v, 3) + " MB";
function drawCards() {
  const here = shown.points.filter(p => place(p) === place(shown.at) && shown.on.includes(p.kernel)).sort((a, b) => a.ms - b.ms);
  const base = shown.base.get(place(shown.at)), best = here[0];
  const from = p => base && base.record !== p.record ? "; the two are from different records" : "";
  get("say").textContent = best ? where(best) + ": " + best.kernel + " takes " + digits(best.ms, 4) + " ms" + (base && base !== best
    ? ", " + digits(base.ms / best.ms, 3) + " times as fast as " + base.kernel + " (" + digits(base.ms, 4) + " ms)" + from(best) : "") + "." : "";
  const line = (name, value) => value === null || value === undefined ? [] : [el("dt", {}, name), el("dd", {}, value)];
  get("cards").replaceChildren(...here.map(p => el("article", { class: "card", own: p.kernel }, el("h3", {}, p.kernel),
    el("div", { class: "big" }, digits(p.ms, 4) + " ms ", el("small", {}, "\u00b1" + (50 * (p.high - p.low) / p.ms).toPrecision(2) + " %")),
    el("dl", {}, base ? line("speed-up", times(base.ms / p.ms)) : [], line("TFLOP/s", digits(p.tflops, 4)), line("of SGEMM", p.sgemm_percent === null ? null : digits(p.sgemm_percent, 3) + " %"),
      line("GB/s", p.gb_per_s === null ? null : digits(p.gb_per_s, 3)), line("error", p.max_error === null ? null : tiny(p.max_error)), line("bound", p.bound === null ? null : tiny(p.bound)),
      line("registers", p.registers), line("shared", p.shared_bytes === null ? null : digits(p.shared_bytes / 1024, 3) + " KB"),
      line("occupancy", p.occupancy === null ? null : Math.round(100 * p.occupancy) + " %"),
      p.counted ? [line("DRAM read", mb(p.dram_read)), line("DRAM written", mb(p.dram_written))] : line("DRAM, model", p.dram_read === null ? null : mb(p.dram_read)),
      line("energy", p.joules === null ? null : digits(1000 * p.joules, 3) + " mJ"), line("GFLOP/J", p.gflop_per_joule === null ? null : digits(p.gflop_per_joule, 3)),
      line("launches", p.launches), line("between them", p.between === null ? null : p.between ? mb(p.between) : "nothing"),
      line("nearest roof", p.roof === null ? null : p.roof + " " + Math.round(p.of_roof) + " %")))));
}
const COLUMNS = [["kernel", p => p.kernel], ["case", p => named(p)], ["B", p => p.B], ["N", p => p.N], ["d", p => p.d], ["ms", p => p.ms, v => digits(v, 4)], ["\u00b1 %", p => 50 * (p.high - p.low) / p.ms, v => v.toPrecision(2)],
  ["n", p => p.samples], ["TFLOP/s", p => p.tflops, v => digits(v, 4)], ["% SGEMM", p => p.sgemm_percent, v => digits(v, 3)], ["GB/s", p => p.gb_per_s, v => digits(v, 3)],
  ["max error", p => p.max_error, tiny], ["bound", p => p.bound, tiny], ["speed-up", p => MEASURES.times.value(p) ?? null, times], ["record", p => data.records[p.record].name.replace(/\.json$/, "")]];
function drawTable() {
  const [by, order] = state.sort ? state.sort.split(" ").length > 1 ? [state.sort.slice(0, state.sort.lastIndexOf(" ")), last(state.sort.split(" "))] : ["", ""] : ["", ""];
  const rows = shown.points.filter(p => shown.on.includes(p.kernel)).sort((a, b) => a.N - b.N || a.B - b.B || a.ms - b.ms);
  const column = COLUMNS.find(one => one[0] === by);
  if (column) rows.sort((a, b) => { // what has no value comes last either way
    const [u, v] = [column[1](a), column[1](b)], sign = order === "descending" ? -1 : 1;
    if (u === null || v === null || u === undefined || v === undefined) return (u === null || u === undefined) - (v === null || v === undefined);
    return sign * (typeof u === "number" ? u - v : u.localeCompare(v, "en", { numeric: true }));
  });
  fill("table", COLUMNS, rows, column ? { by, order } : { by: "", order: "" }, (name, now) => change({ sort: name + " " + (now === "ascending" ? "descending" : "ascending") }));
}
function fill(id, columns, rows, sorted, onsort) {
  const left = name => ["kernel", "case", "record", "program", "idea"].includes(name) ? "left" : null;
  refill(get(id).tHead, [el("tr", {}, columns.map(([name]) => {
    const now = sorted && sorted.by === name ? sorted.order : null;
    return el("th", { scope: "col", class: left(name), "aria-sort": now }, onsort ? el("button", { type: "button", "data-key": name, onclick: () => onsort(name, now) }, name) : el("span", {}, name));
  }))]);
  get(id).tBodies[0].replaceChildren(...rows.map(row => el("tr", {}, columns.map(([name, of, text], i) => {
    const value = of(row), shows = value === null || value === undefined ? "\u2013" : text ? text(value) : String(value);
    return el(i ? "td" : "th", { scope: i ? null : "row", class: name === "idea" ? "words" : left(name), "data-name": i && name !== "idea" && name !== "(B, N, d)" ? name : null, own: i || data.names.indexOf(value) < 0 ? undefined : value }, i || data.names.indexOf(value) < 0 ? null : el("span", { class: "dot" }), shows);
  }))));
}

// ---- the ladder
function ladders() { // the cases of a record that hold three rungs or more, the fullest first
  const found = new Map();
  for (const p of points) if (!p.tile && data.ladder.includes(p.kernel)) {
    const key = data.records[p.record].name + " " + place(p);
    if (!found.has(key)) found.set(key, { key, record: data.records[p.record], points: [] });
    found.get(key).points.push(p);
  }
  return [...found.values()].filter(one => one.points.length > 2).sort((a, b) => b.points.length - a.points.length || b.points[0].B * b.points[0].N ** 2 - a.points[0].B * a.points[0].N ** 2);
}
const chosenLadder = () => ladders().find(l => l.key === state.rungs) || ladders()[0];
function drawLadder() {
  const all = ladders(), one = chosenLadder();
  const rungs = [...one.points].sort((a, b) => data.ladder.indexOf(a.kernel) - data.ladder.indexOf(b.kernel)), first = rungs[0];
  options("rungs", all.map(l => [l.key, where(l.points[0]) + ", " + short(l.record.gpu) + ", " + l.points.length + " kernels, " + l.record.name]), one.key);
  get("ladder-title").textContent = "Times on " + where(first) + ", " + short(one.record.gpu);
  const host = get("ladder"), W = Math.max(280, host.clientWidth), above = W < PHONE, row = above ? 44 : 34, thick = above ? 18 : 24, top = 8, // on a phone, names stand above their bars
    left = above ? 2 : 14 + Math.max(...rungs.map(p => wide(cut(p.kernel)))), note = 138, H = top + row * rungs.length + 42;
  const x = logScale(Math.min(...rungs.map(p => p.low)) / 2, Math.max(...rungs.map(p => p.high)) * 1.05, left, W - note);
  const art = svg("svg", { viewBox: "0 0 " + W + " " + H, width: W, height: H, "aria-hidden": "true" });
  let free = -1e9;
  for (const t of x.ticks) {
    art.append(svg("line", { class: "grid", x1: x(t), x2: x(t), y1: top, y2: H - 42 }));
    if (x(t) - wide(tickText(t)) / 2 > free) { art.append(svg("text", { class: "soft", x: x(t), y: H - 25, "text-anchor": "middle" }, tickText(t))); free = x(t) + wide(tickText(t)) / 2 + 6; }
  }
  art.append(svg("text", { x: left, y: H - 6 }, "time, ms, log"));
  rungs.forEach((p, i) => {
    const y = top + row * i + (above ? 20 : 5), middle = y + thick / 2, end = x(p.ms);
    art.append(svg("text", above ? { x: left, y: y - 5 } : { x: left - 8, y: middle + 4, "text-anchor": "end" }, cut(p.kernel)), svg("rect", { x: left, y, width: end - left, height: thick, rx: 3, fill: colour(p.kernel) }),
      svg("line", { x1: x(p.low), x2: x(p.high), y1: middle, y2: middle, stroke: "var(--ink)", "stroke-width": 1.5 }),
      svg("text", { x: end + 8, y: middle + 4, class: "halo" }, digits(p.ms, 4) + " ms  " + times(first.ms / p.ms)));
  });
  host.replaceChildren(art);
  host.setAttribute("aria-label", rungs.map(p => p.kernel + " " + digits(p.ms, 4) + " ms").join(", "));
  get("ladder-method").textContent = "\u00d7 is how many times as fast as " + first.kernel + " \u00b7 " + one.record.facts + " \u00b7 " + one.record.method;
  const before = p => rungs.find(one => one.kernel === data.stories.find(s => s.name === p.kernel)?.before);
  const idea = p => data.stories.find(s => s.name === p.kernel)?.headline ?? "";
  fill("ladder-table", [["kernel", p => p.kernel], ["ms", p => p.ms, v => digits(v, 4)], ["TFLOP/s", p => p.tflops, v => digits(v, 4)], ["over " + first.kernel, p => first.ms / p.ms, times],
    ["over the rung before", p => before(p) ? before(p).ms / p.ms : null, times], ["max error", p => p.max_error, tiny], ["idea", idea]], rungs);
}

// ---- tiles
function drawTiles() {
  const groups = new Map();
  for (const p of points) if (p.tile) { const key = [p.record, p.kernel, p.stages, place(p)].join(); groups.set(key, [...(groups.get(key) || []), p]); }
  const measure = MEASURES[state.cells] || MEASURES.tflops;
  options("cells", [["tflops", MEASURES.tflops.name], ["ms", MEASURES.ms.name]], state.cells);
  get("maps").replaceChildren(...[...groups.values()].map(group => {
    const size = (p, side) => Number(p.tile.split("x")[side]), sizes = side => unique(group.map(p => size(p, side))).sort((a, b) => a - b);
    const most = Math.max(...group.map(p => p.tflops)), p0 = group[0];
    const cell = p => p ? el("td", { class: "heat" + Math.min(data.heat - 1, Math.floor(data.heat * p.tflops / most)) + (p.tflops === most ? " best" : ""), title: p.tile + ": " + digits(p.ms, 4) + " ms, " + digits(p.tflops, 4) + " TFLOP/s" },
      measure.value(p) >= 100 ? digits(measure.value(p), 4) : measure.value(p).toFixed(measure === MEASURES.ms ? 2 : 1)) : el("td", {}, "\u2013");
    return el("div", { class: "card map" }, el("table", {}, el("caption", {}, p0.kernel + (p0.stages === null ? "" : ", " + p0.stages + (p0.stages === 1 ? " stage" : " stages")) + " on " + where(p0) + ", " + short(data.records[p0.record].gpu) + ", " + measure.unit),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "BR \\ BC"), sizes(1).map(bc => el("th", { scope: "col" }, String(bc))))),
      el("tbody", {}, sizes(0).map(br => el("tr", {}, el("th", { scope: "row" }, String(br)), sizes(1).map(bc => cell(group.find(p => size(p, 0) === br && size(p, 1) === bc))))))),
      el("p", { class: "method" }, data.records[p0.record].facts));
  }));
  const count = data.heat;
  get("shades").replaceChildren(...Array.from({ length: count }, (_, i) => el("span", { class: "heat" + i }, Math.round(100 * i / count) + (i === count - 1 ? "\u2013100 %" : ""))));
}

// ---- whole programs
const withRuns = unique(data.runs.map(r => r.record)), chosenPrograms = () => withRuns.find(i => data.records[i].name === state.programs) ?? withRuns[0];
function drawPrograms() {
  const records = withRuns, which = chosenPrograms();
  options("programs-of", records.map(i => [data.records[i].name, data.records[i].name]), data.records[which].name);
  const runs = data.runs.filter(r => r.record === which), cases = runs.filter(r => r.shape), names = unique(runs.map(r => r.program)), keys = unique(cases.map(r => r.case));
  const sums = runs.filter(r => !r.shape);
  get("sums").textContent = sums.length ? "All cases together: " + sums.map(r => r.program + " " + digits(r.seconds, 4) + " s").join(", ") + "." : "";
  refill(get("programs-legend"), names.map(name => el("li", {}, el("span", { class: "entry" }, svg("svg", { class: "swatch", viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(name, 0, 0, 4.5)), name))));
  const host = get("programs"), W = Math.max(280, host.clientWidth), row = 20, top = 6, phone = W < PHONE, label = key => { const r = cases.find(one => one.case === key); return phone ? key : key + " (" + r.shape.join(", ") + ")"; };
  const left = 12 + Math.max(...keys.map(key => wide(label(key)))), H = top + row * keys.length + 42, x = linearScale(Math.max(...cases.map(r => r.slowest)) * 1.03, left, W - 16);
  const art = svg("svg", { viewBox: "0 0 " + W + " " + H, width: W, height: H, "aria-hidden": "true" });
  for (const t of x.ticks) art.append(svg("line", { class: "grid", x1: x(t), x2: x(t), y1: top, y2: H - 42 }), svg("text", { class: "soft", x: x(t), y: H - 25, "text-anchor": "middle" }, tickText(t)));
  art.append(svg("text", { x: left, y: H - 6 }, "wall time, s; lines: fastest to slowest run"));
  keys.forEach((key, i) => {
    const y = top + row * (i + .5), own = cases.filter(r => r.case === key);
    art.append(svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, label(key)), svg("line", { class: "span", x1: x(Math.min(...own.map(r => r.seconds))), x2: x(Math.max(...own.map(r => r.seconds))), y1: y, y2: y }));
    for (const r of own) art.append(svg("line", { x1: x(r.fastest), x2: x(r.slowest), y1: y, y2: y, stroke: colour(r.program), "stroke-width": 1.5 }), mark(r.program, x(r.seconds), y, 4.2));
  });
  host.replaceChildren(art);
  host.setAttribute("aria-label", get("sums").textContent || "Times of whole programs");
  get("programs-method").textContent = data.records[which].facts + " \u00b7 " + data.records[which].method;
  const of = (key, name) => runs.find(r => r.case === key && r.program === name)?.seconds ?? null;
  fill("programs-table", [["case", k => k], ["(B, N, d)", k => runs.find(r => r.case === k).shape?.join(", ")], ...names.map(name => [name + ", s", k => of(k, name), v => v.toFixed(3)]),
    ...names.slice(1).map(name => [name + " / " + names[0], k => of(k, name) && of(k, names[0]) ? of(k, name) / of(k, names[0]) : null, v => v.toFixed(2)])], [...keys, ...sums.length ? [sums[0].case] : []]);
}

// ---- kernels: story, source, difference
const WORDS = /(\/\/.*)|("(?:[^"\\]|\\.)*")|(^\s*#\s*\w+)|\b(alignas|asm|auto|bool|break|case|char|const|constexpr|continue|do|double|else|extern|false|float|for|if|inline|int|long|namespace|return|short|signed|sizeof|static|static_assert|struct|switch|template|true|typedef|typename|unsigned|using|void|volatile|while|__global__|__device__|__forceinline__|__shared__|__restrict__|__launch_bounds__|__syncthreads)\b|\b(\d[\w.']*)\b/gm;
function coloured(line) {
  const parts = [];
  let from = 0;
  for (const found of line.matchAll(WORDS)) {
    parts.push(line.slice(from, found.index), el("span", { class: found[1] ? "c" : found[2] || found[5] ? "n" : "w" }, found[0]));
    from = found.index + found[0].length;
  }
  return [...parts, line.slice(from)];
}
function difference(a, b) { // lines of a, then b: [sign, line, number in b], by their longest common subsequence
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length)
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push([" ", b[j], ++j]); i++; }
    else if (i < a.length && (j === b.length || length[i + 1][j] >= length[i][j + 1])) out.push(["-", a[i++], ""]);
    else out.push(["+", b[j], ++j]);
  return out;
}
function drawKernels() {
  const story = data.stories.find(s => s.name === state.kernel) || data.stories[0];
  refill(get("list"), data.stories.map(s => el("button", { type: "button", "data-key": s.name, own: s.name, "aria-current": String(s === story), onclick: () => change({ kernel: s.name, file: "", diff: "" }) }, el("span", { class: "dot" }), s.name)));
  const article = get("story");
  article.style.setProperty("--own", colour(story.name));
  article.replaceChildren(el("h2", {}, story.name), el("p", {}, story.headline), el("dl", {}, Object.entries(story.labels).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])));
  const against = data.stories.some(s => s.name === state.diff && s !== story) ? state.diff : "";
  const file = !against && story.files.includes(state.file) ? state.file : story.files[0];
  options("diff", [["", "nothing: the source"], ...data.stories.filter(s => s !== story).map(s => [s.name, s.name + (s.name === story.before ? " (the rung before)" : "")])], against);
  options("file", (against ? story.files.slice(0, 1) : story.files).map(name => [name, name]), file);
  const lines = name => data.files[name].replace(/\n$/, "").split("\n");
  get("code-title").textContent = against ? "From " + against + " to " + story.name : file;
  const body = name => lines(name).slice(lines(name).findIndex(line => !line.startsWith("//"))); // the header is shown above
  const skipped = lines(file).length - body(file).length;
  const shownLines = against ? trimmed(difference(body(against + ".cu"), body(file))).map(([sign, line, n]) => [sign, line, n && n + skipped])
    : lines(file).map((line, i) => [" ", line, i + 1]);
  get("code").replaceChildren(...shownLines.map(([sign, line, number]) => el("span", { class: "l" + ({ "+": " add", "-": " cut", "~": " gap" }[sign] || ""), "data-n": number },
    ...(against ? [sign === "~" ? "" : sign + " "] : []), ...(sign === "+" || sign === "-" || sign === "~" ? [line] : coloured(line)), "\n")));
  get("code").scrollTop = 0;
}
function trimmed(lines) { // three lines around what differs
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - 3), i + 4).some(([sign]) => sign !== " ")), out = [];
  for (let i = 0; i < lines.length; i++)
    if (near[i]) out.push(lines[i]);
    else if (!i || near[i - 1]) { let n = 1; while (i + n < lines.length && !near[i + n]) n++; out.push(["~", "\u22ef " + n + (n === 1 ? " line" : " lines") + " alike", ""]); }
  return out;
}

// ---- files to keep
function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type })), link = el("a", { href: url, download: name });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
function saveSvg(host, name, words) { // with the colours of the page in it, and where the figures are from
  const art = host.querySelector("svg"), copy = art.cloneNode(true), from = [art, ...art.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "paint-order"];
  from.forEach((element, i) => {
    const seen = getComputedStyle(element);
    if (i) for (const property of KEPT) to[i].setAttribute(property, seen.getPropertyValue(property));
    to[i].removeAttribute("class"); to[i].removeAttribute("style");
  });
  const [, , W, H] = art.getAttribute("viewBox").split(" ").map(Number), soft = getComputedStyle(document.querySelector(".hint")).color;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, 'Segoe UI', 'Noto Sans', sans-serif");
  copy.setAttribute("viewBox", "0 0 " + W + " " + (H + 8 + 16 * words.length)); copy.setAttribute("height", H + 8 + 16 * words.length);
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: getComputedStyle(get("code")).backgroundColor }));
  words.forEach((line, i) => copy.append(svg("text", { x: 2, y: H + 16 * (i + 1), fill: soft, "font-size": "10px" }, line)));
  save(name + ".svg", "image/svg+xml", new XMLSerializer().serializeToString(copy));
}
function saveCsv() {
  const quoted = v => v === null || v === undefined ? "" : /[",\n]/.test(String(v)) ? '"' + String(v).replaceAll('"', '""') + '"' : String(v);
  const rows = shown.points.filter(p => shown.on.includes(p.kernel)).sort((a, b) => a.N - b.N || a.B - b.B || a.ms - b.ms);
  const fields = data.fields.filter(f => f !== "record" && f !== "tile");
  const text = [["gpu", ...fields, "record", "facts"], ...rows.map(p => [shown.gpu, ...fields.map(f => p[f]), data.records[p.record].name, data.records[p.record].facts])].map(row => row.map(quoted).join(",")).join("\n") + "\n";
  save("hw4-lab.csv", "text/csv", text);
}

// ---- which records a view shows, and why it does not show the others
const figuresOf = data.records.map((record, i) => [points.some(p => p.record === i && !p.tile) && "times of kernels", points.some(p => p.record === i && p.tile) && "a sweep of tiles",
  data.runs.some(r => r.record === i) && "whole programs", data.timelines.some(t => t.record === i) && "blocks in time", record.counts && "a profiler's counters", record.roofs && "a GPU's roofs"].filter(Boolean).join(" and ") || "no figures");
function unused(view, record, i) { // the reason; empty where it is shown
  const lacks = what => "it holds " + figuresOf[i] + ", not " + what, other = "another one is chosen above";
  if (view === "kernels") return "kernels are shown by their text";
  if (view === "compare" && (record.counts || record.roofs)) return record.gpu === shown.gpu ? "" : "of another GPU"; // the cards have them
  if (view === "compare") return !figuresOf[i].includes("times") ? lacks("times of kernels") : record.gpu !== shown.gpu ? "of another GPU" : shown.record && shown.record !== record.name ? other
    : shown.points.some(p => p.record === i) ? "" : "of another head size, type, mask, pass or N than is chosen, or a newer record holds the same";
  if (view === "ladder") return !ladders().some(l => l.record === record) ? lacks("three kernels on one case") : chosenLadder().record === record ? "" : other;
  if (view === "tiles") return figuresOf[i].includes("tiles") ? "" : lacks("a sweep of tiles");
  if (view === "programs") return !figuresOf[i].includes("programs") ? lacks("whole programs") : i === chosenPrograms() ? "" : other;
  return !figuresOf[i].includes("blocks") ? lacks("blocks in time") : shownTimeline === i ? "" : "of another kernel, or another block is chosen";
}
function drawRecords(view) {
  const reasons = data.records.map((record, i) => unused(view, record, i)), count = reasons.filter(reason => !reason).length;
  get("records").closest("details").hidden = !data.records.length && !data.unused.length;
  get("records-title").textContent = "Records: " + (!reasons.length ? "none" : count === reasons.length ? "all " + count + " are" : (count || "none") + " of " + reasons.length + (count < 2 ? " is" : " are")) + " shown here";
  get("records").replaceChildren(...data.records.map((r, i) => el("li", {}, r.facts + " \u00b7 " + r.method, reasons[i] ? el("span", { class: "unused" }, "not shown here: " + reasons[i]) : null,
    r.failures.length ? el("ul", {}, r.failures.map(one => el("li", {}, one))) : null)), ...data.unused.map(one => el("li", {}, one)));
}

// ---- all of it
const VIEWS = [["compare", "Compare", points.some(p => !p.tile), drawCompare], ["ladder", "Ladder", ladders().length > 0, drawLadder], ["tiles", "Tiles", points.some(p => p.tile), drawTiles],
  ["programs", "Programs", data.runs.length > 0, drawPrograms], ["kernels", "Kernels", data.stories.length > 0, drawKernels], ["steps", "Steps", true, drawSteps]].filter(([, , there]) => there);
function draw() {
  const [view, , , make] = VIEWS.find(([name]) => name === state.view) || VIEWS[0];
  refill(get("tabs"), VIEWS.map(([name, text]) => el("button", { type: "button", role: "tab", id: "tab-" + name, "data-key": name, "aria-controls": "view-" + name, "aria-selected": String(name === view),
    tabindex: name === view ? 0 : -1, onclick: () => change({ view: name }) }, text)));
  for (const [name] of VIEWS) get("view-" + name).hidden = name !== view;
  get("tip").hidden = true;
  if (view === "compare") choose();
  make();
  drawRecords(view);
}
get("tabs").addEventListener("keydown", event => {
  const names = VIEWS.map(([name]) => name), now = names.indexOf(document.activeElement.dataset.key);
  const to = { ArrowRight: (now + 1) % names.length, ArrowLeft: (now + names.length - 1) % names.length, Home: 0, End: names.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  change({ view: names[to] });
  get("tab-" + names[to]).focus();
});
for (const [id, name] of [["gpu"], ["record"], ["d"], ["dtype"], ["causal"], ["pass"], ["measure"], ["over"], ["at"], ["base"], ["rungs"], ["cells"], ["programs-of", "programs"], ["diff"], ["file"]])
  get(id).addEventListener("change", event => change(id === "gpu" ? { gpu: event.target.value, record: "", at: "" } : id === "measure" ? { measure: event.target.value, scale: "" } : { [name || id]: event.target.value }));
const chart = get("chart");
chart.addEventListener("pointermove", showTip);
chart.addEventListener("pointerleave", () => { get("tip").hidden = true; });
chart.addEventListener("click", event => { const w = shown.workloads[nearest(event)]; if (w) change({ at: place(w) }); });
chart.addEventListener("keydown", event => {
  const count = shown.workloads.length, now = shown.workloads.indexOf(shown.at);
  const to = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, Home: 0, End: count - 1 }[event.key];
  if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  change({ at: place(shown.workloads[Math.max(0, Math.min(count - 1, to))]) });
});
document.addEventListener("keydown", event => { if (event.key === "Escape") get("tip").hidden = true; });
const captions = id => [get(id).textContent];
get("save-svg").addEventListener("click", () => saveSvg(chart, "hw4-" + state.measure, shown.used.map(r => r.facts)));
get("save-ladder").addEventListener("click", () => saveSvg(get("ladder"), "hw4-ladder", captions("ladder-method")));
get("save-programs").addEventListener("click", () => saveSvg(get("programs"), "hw4-programs", captions("programs-method")));
get("save-csv").addEventListener("click", saveCsv);
get("facts").textContent = !data.records.length ? "The kernels and their steps; records of hw4 bench add what was measured" : data.gpus.map(gpu => gpu.name).join(" \u00b7 ") + " \u00b7 " + data.records.length + (data.records.length === 1 ? " record" : " records") + " \u00b7 " + grouped(points.length + data.runs.length) + " measurements";
addEventListener("hashchange", () => { read(); draw(); });
let size = innerWidth;
addEventListener("resize", () => { if (innerWidth !== size) { size = innerWidth; draw(); } });
addEventListener("DOMContentLoaded", () => { read(); draw(); }); // when the stepper, which comes next, is there
