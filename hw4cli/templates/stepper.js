// ---- steps: what one block does. Tiles, threads, parts of shared memory and the order of the phases are the data's.
const steps = data.steps, LOG2E = Math.LOG2E, SHOWN = 4; // columns of O
let walk = null; // what is chosen, and what follows from it for the block
const whole = (text, low, high, otherwise) => { const n = Number.parseInt(text, 10); return Number.isNaN(n) ? otherwise : Math.max(low, Math.min(high, n)); };
const ceilDiv = (a, b) => Math.ceil(a / b), sum = list => list.reduce((a, b) => a + b, 0);
const bytesText = n => n < 1024 ? n + " B" : n < 1024 ** 2 ? digits(n / 1024, 3) + " KB" : n < 1024 ** 3 ? digits(n / 1024 ** 2, 3) + " MB" : digits(n / 1024 ** 3, 3) + " GB";
const from0 = (first, count) => count > 1 ? first + "\u2013" + (first + count - 1) : String(first);

function chooseWalk() {
  const kernel = steps.kernels.includes(state.kernel) ? state.kernel : steps.first;
  const device = Math.max(0, steps.devices.findIndex(one => String(one.cc) === (state.cc || String(steps.cc))));
  const at = Math.max(0, steps.cases.findIndex(one => one[0] === state.shape)), [, B, N, d] = steps.cases[at];
  const masked = state.mask === "causal", paper = state.order === "1", plan = steps.plans[steps.kernels.indexOf(kernel)][device][at][Number(masked)];
  if (typeof plan === "string") return { kernel, device, at, causal: masked, paper, refusal: plan };
  const [number, splits, grids, otherRead, otherWritten] = plan, g = steps.geometries[number], work = paper ? steps.algorithm : steps.works[g.work];
  const causal = masked && work.fused;
  const w = { kernel, device, at, causal, paper, B, N, d, g, work, grids, splits: paper ? 1 : splits, other: [otherRead, otherWritten],
    rowBlocks: ceilDiv(N, g.BR), tiles: ceilDiv(N, g.BC), regions: paper ? g.algorithm_regions : g.regions, base: work.maximum === "first" || paper ? 1 : LOG2E };
  w.blocks = B * (paper ? 1 : w.rowBlocks * w.splits);
  w.block = whole(state.block, 0, w.blocks - 1, paper ? 0 : blockOf(w, 0, w.rowBlocks >> 1) * w.splits);
  w.split = w.block % w.splits;
  const place = paper ? { batch: w.block, rowBlock: null } : placeOf(w, Math.floor(w.block / w.splits));
  w.batch = place.batch;
  [w.first, w.end] = keysOf(w, place.rowBlock, w.split);
  while (w.first >= w.end) w.block--, [w.first, w.end] = keysOf(w, place.rowBlock, --w.split); // a split without keys ends at once
  w.query = paper ? whole(state.row, 0, N - 1, N >> 1) : null; // there, a row is one of the whole batch
  w.rowBlock = paper ? Math.floor(w.query / g.BR) : place.rowBlock; // where the row is
  w.row0 = w.rowBlock * g.BR;
  w.rows = Math.min(g.BR, N - w.row0);
  w.row = paper ? w.query - w.row0 : whole(state.row, 0, w.rows - 1, Math.min(w.rows - 1, 5));
  w.thread = whole(state.thread, 0, g.threads - 1, Math.min(g.threads - 1, 37));
  w.parts = work.parts.map(part => ({ ...part, phases: part.phases.filter(p => !p.only || (p.only === "split") === (w.splits > 1)) }));
  let start = 0;
  for (const part of w.parts) {
    part.start = start;
    part.starts = [start]; // of each tile
    const count = part.tiles ? w.end - w.first : 1;
    for (let i = 0; i < count; i++) part.starts.push(last(part.starts) + part.phases.length + part.inner.length * (w.rowBlocks - firstRows(w, w.first + i)));
    start = last(part.starts);
  }
  w.count = start;
  w.step = whole(state.step, 0, w.count - 1, 0);
  w.now = stepAt(w, w.step);
  return w;
}
// A causal row sees the keys up to its own number: the tiles behind those of a block's last row are skipped; and by Algorithm 1,
// the tiles of rows before a tile of keys. Splits are as long for all blocks of rows: the last ones of a block may be left with none.
const tilesOf = (w, rowBlock) => w.causal && rowBlock !== null ? ceilDiv(Math.min(w.N, (rowBlock + 1) * w.g.BR), w.g.BC) : w.tiles;
function keysOf(w, rowBlock, split) {
  const tiles = tilesOf(w, rowBlock), each = ceilDiv(w.tiles, w.splits);
  if (!w.causal) return [Math.floor(tiles * split / w.splits), Math.floor(tiles * (split + 1) / w.splits)];
  return [split * each, Math.min(tiles, (split + 1) * each)];
}
const firstRows = (w, tile) => w.causal ? Math.floor(tile * w.g.BC / w.g.BR) : 0;
// Causal: the lowest rows of so many batches start first, because they have the most keys.
function placeOf(w, number) { // of a block's number without its split
  if (!w.causal) return { batch: Math.floor(number / w.rowBlocks), rowBlock: number % w.rowBlocks };
  const section = w.work.section, first = Math.floor(number / (w.rowBlocks * section)) * section, n = number - first * w.rowBlocks, batches = Math.min(section, w.B - first);
  return { batch: first + n % batches, rowBlock: w.rowBlocks - 1 - Math.floor(n / batches) };
}
function blockOf(w, batch, rowBlock) { // the number of a block without its split
  if (!w.causal) return batch * w.rowBlocks + rowBlock;
  const first = Math.floor(batch / w.work.section) * w.work.section, batches = Math.min(w.work.section, w.B - first);
  return first * w.rowBlocks + (w.rowBlocks - 1 - rowBlock) * batches + batch - first;
}
const keysIn = (w, from, to) => Math.max(0, Math.min(w.N, to * w.g.BC) - from * w.g.BC);

function stepAt(w, step) { // which phase of which part, on which tile of keys, and of rows
  const part = w.parts.findLast(one => one.start <= step && one.starts.length > 1), i = findLastStart(part.starts, step);
  const offset = step - part.starts[i], tile = part.tiles ? w.first + i : null;
  if (offset < part.phases.length) return { part, phase: part.phases[offset], index: offset, tile, rowBlock: w.paper ? null : w.rowBlock };
  const inner = offset - part.phases.length, rowBlock = firstRows(w, tile) + Math.floor(inner / part.inner.length);
  return { part, phase: part.inner[inner % part.inner.length], index: inner % part.inner.length, tile, rowBlock, inner: true };
}
function findLastStart(starts, step) { // the last that is not behind the step; the very last is an end
  let low = 0, high = starts.length - 2;
  while (low < high) { const middle = (low + high + 1) >> 1; if (starts[middle] <= step) low = middle; else high = middle - 1; }
  return low;
}

// ---- bytes
// Of a move, for so many rows, and for each of the tiles `from` up to before `to`: amounts are linear in all of them.
function moveBytes(w, move, rows, rowBlocks, from, to, N = w.N) {
  const keys = keysIn(w, from, to), tiles = Math.max(0, to - from), d = w.d;
  const units = { "rows*d": rows * d * tiles, "keys*d": keys * d * rowBlocks, "rows*keys": rows * keys, "rows*N": rows * N * tiles, "rows": rows * tiles, "tile": w.g.BC * w.g.width * tiles, "keys*d*blocks": keys * d * w.g.value_blocks };
  return sum(Object.entries(move.amount).map(([unit, bytes]) => bytes * units[unit]));
}
function add(w, total, phases, rows, rowBlocks, from, to, end) {
  for (const phase of phases) for (const move of phase.moves) total[move.to === "device" ? 1 : 0] += moveBytes(w, move, rows, rowBlocks, Math.min(end, from + move.ahead), Math.min(end, to + move.ahead));
}
const once = (w, total, phases, rows, first, end) => add(w, total, phases, rows, 1, first, first + 1, Math.max(end, first + 1));
function allOf(w, total, part, rows, first, end) { // of a block of the kernel's own order
  if (!part.tiles) once(w, total, part.phases, rows, first, end);
  else add(w, total, part.phases, rows, 1, first, end, end);
}
function movedBy(w, step) { // bytes that the block has read and written when a step has been done
  const total = [0, 0], now = stepAt(w, step), tail = w.N - (w.rowBlocks - 1) * w.g.BR;
  if (w.paper) {
    const inner = (tile, from, to) => { // of the tiles of rows from..to
      const rows = Math.max(0, Math.min(w.N, to * w.g.BR) - from * w.g.BR);
      add(w, total, now.part.inner, rows, to - from, tile, tile + 1, w.tiles);
    };
    add(w, total, now.part.phases, 0, 1, w.first, now.tile + 1, w.end);
    for (let tile = w.first; tile < now.tile; tile++) inner(tile, firstRows(w, tile), w.rowBlocks);
    if (now.inner) {
      inner(now.tile, firstRows(w, now.tile), now.rowBlock);
      add(w, total, now.part.inner.slice(0, now.index + 1), now.rowBlock === w.rowBlocks - 1 ? tail : w.g.BR, 1, now.tile, now.tile + 1, w.tiles);
    }
    return total;
  }
  for (const part of w.parts) {
    if (part === now.part) {
      if (part.tiles) add(w, total, part.phases, w.rows, 1, w.first, now.tile, w.end);
      add(w, total, part.phases.slice(0, now.index + 1), w.rows, 1, now.tile ?? w.first, (now.tile ?? w.first) + 1, Math.max(w.end, part.tiles ? 0 : w.first + 1));
      return total;
    }
    allOf(w, total, part, w.rows, w.first, w.end);
  }
  return total;
}
function movedByAll(w) { // by all blocks of all launches
  if (w.paper) return movedBy(w, w.count - 1).map(n => n * w.B);
  const total = [0, 0];
  for (let r = 0; r < w.rowBlocks; r++) for (let s = 0; s < w.splits; s++) {
    const [first, end] = keysOf(w, r, s);
    if (first < end) for (const part of w.parts) allOf(w, total, part, Math.min(w.g.BR, w.N - r * w.g.BR), first, end);
  }
  return total.map((n, i) => n * w.B + w.other[i]);
}

// ---- what is where
const regionOf = (w, move, tile) => move.to === "stage" ? "stage " + tile % w.g.stages : move.to;
function contents(w) { // by part of shared memory: what it holds, of which tile, and whether that is still on its way
  const found = {}, here = w.now, lately = [];
  for (const part of w.parts) {
    if (part.start > w.step) break;
    if (!part.tiles) { part.phases.forEach((phase, i) => { if (part.start + i <= w.step) lately.push([phase, w.first, part.start + i, w.rowBlock]); }); continue; }
    const tile = part === here.part ? here.tile : w.end - 1;
    for (let t = Math.max(w.first, tile - w.g.stages); t <= tile; t++) {
      const start = part.starts[t - w.first];
      part.phases.forEach((phase, i) => { if (start + i <= w.step) lately.push([phase, t, start + i, null]); });
    }
    if (here.inner) part.inner.forEach((phase, i) => { if (i <= here.index) lately.push([phase, here.tile, w.step - here.index + i, here.rowBlock]); });
  }
  for (const [phase, tile, at, rowBlock] of lately) {
    for (const name of [...phase.reads, ...phase.come]) { const read = found[name === "stage" ? "stage " + tile % w.g.stages : name]; if (read) read.arriving = false; }
    for (const move of phase.moves) {
      const of = tile + move.ahead, name = regionOf(w, move, of);
      if (name === "device" || name === "registers" || (of >= w.end && move.ahead)) continue;
      const rows = "rows*d" in move.amount;
      found[name] = { what: move.what, tile: rows ? null : of, rowBlock: rows ? rowBlock : null, arriving: w.work.overlaps || at === w.step };
    }
  }
  return found;
}

// ---- numbers: Q, K and V of the case, made up here, the same everywhere
function element(w, which, row, c) { // of Q, K, V: in [-3, 3), from a hash of its place
  let x = (((w.batch * 3 + which) * w.N + row) * w.d + c) % 2 ** 32 | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32 * 6 - 3;
}
let numbers = { key: "" };
function rowNumbers(w) { // the row's scores with the block's keys, and its m, l, O after each tile
  const rule = w.work.maximum, key = [w.kernel, w.paper, w.causal, w.batch, w.N, w.d, w.g.BC, w.g.sub, w.row0 + w.row, w.first, w.end].join();
  if (numbers.key === key) return numbers;
  const i = w.row0 + w.row, key0 = w.first * w.g.BC, keys = keysIn(w, w.first, w.end), q = Array.from({ length: w.d }, (_, c) => element(w, 0, i, c));
  const s = new Float64Array(keys), power = x => w.base === 1 ? Math.exp(x) : 2 ** x;
  for (let j = 0; j < keys; j++) {
    let dot = 0;
    for (let c = 0; c < w.d; c++) dot += q[c] * element(w, 1, key0 + j, c);
    s[j] = w.causal && key0 + j > i ? -Infinity : dot * w.base / Math.sqrt(w.d);
  }
  const highest = s.reduce((a, b) => Math.max(a, b), -Infinity), after = [], tops = [];
  let m = rule === "zero" ? 0 : rule === "first" ? highest : -Infinity, l = 0, O = new Array(SHOWN).fill(0);
  after.push({ m, l, O, alpha: 1, added: 0 });
  for (let t = 0; t * w.g.BC < keys; t++) {
    let alpha = 1, added = 0;
    const sub = rule === "lazy" ? w.g.sub : w.g.BC, end = Math.min(keys, (t + 1) * w.g.BC);
    O = [...O];
    for (let from = t * w.g.BC; from < end; from += sub) {
      const part = s.subarray(from, Math.min(end, from + sub)), top = part.reduce((a, b) => Math.max(a, b), -Infinity);
      const moves = rule === "online" ? top > m : rule === "lazy" && top > m + (m === -Infinity ? 0 : w.g.threshold);
      if (moves) { const shrink = m === -Infinity ? 0 : power(m - top); m = top; l *= shrink; added *= shrink; alpha *= shrink; O = O.map(x => x * shrink); }
      if (m === -Infinity) continue; // no key that it may see yet
      for (let j = 0; j < part.length; j++) {
        const p = power(part[j] - m);
        added += p;
        for (let c = 0; c < SHOWN; c++) O[c] += p * element(w, 2, key0 + from + j, c);
      }
    }
    l += added;
    tops.push(Math.max(tops.length ? last(tops) : -Infinity, s.subarray(t * w.g.BC, end).reduce((a, b) => Math.max(a, b), -Infinity)));
    after.push({ m, l, O, alpha, added });
  }
  return numbers = { key, s, after, tops, highest, power, key0 };
}
function progress(w, does) { // on how many tiles of the row a thing has been done, when the step is over
  const all = w.end - w.first, { now } = w;
  let count = 0;
  for (const part of w.parts) {
    const list = w.paper ? part.inner : part.phases, at = list.findIndex(phase => phase.does === does);
    if (at < 0 || part.start > w.step) continue;
    if (part !== now.part) count = all;
    else if (!part.tiles) count = now.index >= at ? all : count;
    else if (w.paper) count = now.tile - w.first + (now.inner && (now.rowBlock > w.rowBlock || (now.rowBlock === w.rowBlock && now.index >= at)) ? 1 : 0);
    else count = now.tile - w.first + (now.index >= at ? 1 : 0);
  }
  return count;
}

// ---- who holds what
function ownerOf(g, layout, i, j) { // the thread that has element (i, j); of several copies, the first
  if (layout.width) return (i * layout.width + j) % g.threads;
  let thread = 0;
  for (const [size, stride] of layout.rows) { thread += i % size * stride; i = Math.floor(i / size); }
  for (const [size, stride] of layout.columns) { thread += j % size * stride; j = Math.floor(j / size); }
  return thread;
}
function holds(g, layout, thread, i, j) {
  const first = ownerOf(g, layout, i, j);
  for (let n = 0; n < (layout.copies || 1); n++) if (first + n * (layout.apart || 0) === thread) return true;
  return false;
}
const shares = new WeakMap(); // of layouts: how many elements a thread has that has any, and how many threads these are
function shareOf(g, layout, columns) {
  if (!shares.has(layout)) {
    const counts = new Map();
    for (let i = 0; i < g.BR; i++) for (let j = 0; j < columns; j++) for (let n = 0; n < (layout.copies || 1); n++) {
      const thread = ownerOf(g, layout, i, j) + n * (layout.apart || 0);
      counts.set(thread, (counts.get(thread) || 0) + 1);
    }
    shares.set(layout, { each: Math.max(...counts.values()), threads: counts.size });
  }
  return shares.get(layout);
}
function shareText(g, layout, columns, atOnce, blocks) { // from the whole of it to what a narrow box has room for
  const { each, threads } = shareOf(g, layout, columns), whole = grouped(each) + " a thread", of = threads < g.threads ? whole + " of " + grouped(threads) : whole;
  const more = atOnce < columns ? ", " + grouped(each * atOnce / columns) + " at a time" : blocks > 1 ? ", in " + blocks + " blocks" : "";
  return [of + more, of, whole, grouped(each)];
}
function spans(rows, columns, test) { // rectangles [row, column, rows, columns] of what passes, runs of equal rows as one
  const found = [], open = new Map();
  for (let i = 0; i <= rows; i++) {
    const runs = new Set();
    for (let j = 0, from = -1; i < rows && j <= columns; j++) {
      const yes = j < columns && test(i, j);
      if (yes && from < 0) from = j;
      if (!yes && from >= 0) { runs.add(from + "," + (j - from)); from = -1; }
    }
    for (const [run, start] of open) if (!runs.has(run)) { const [c, n] = run.split(",").map(Number); found.push([start, c, i - start, n]); open.delete(run); }
    for (const run of runs) if (!open.has(run)) open.set(run, i);
  }
  return found;
}

// ---- the drawings
const art = (W, H) => svg("svg", { viewBox: "0 0 " + W + " " + H, width: W, height: H, "aria-hidden": "true" });
const box = (x, y, width, height, className, more) => svg("rect", { x: x.toFixed(2), y: y.toFixed(2), width: Math.max(0, width).toFixed(2), height: Math.max(0, height).toFixed(2), class: className, ...more });
const label = (x, y, text, more) => svg("text", { x: x.toFixed(1), y: y.toFixed(1), ...more }, text);
const tintOf = what => "t-" + ({ Q: "q", K: "k", V: "v", S: "s", P: "s", O: "o", "K, V": "kv", "O, m, l": "o", "Q or O": "q" }[what] || "x");

function drawMap(w) {
  const host = get("map"), W = Math.max(220, host.clientWidth), side = Math.min(W - 34, 330), left = 26, top = 22, out = art(W, top + side + 24), unit = side / w.N, { now, g } = w;
  const x = key => left + key * unit, y = row => top + row * unit, wideBox = (key0, key1, row0, row1, className) => { // never too thin to be seen
    const height = Math.max(2.5, (row1 - row0) * unit), width = Math.max(2.5, (key1 - key0) * unit);
    return box(Math.min(x(key0), left + side - width), Math.min(y(row0), top + side - height), width, height, className);
  };
  out.append(box(left, top, side, side, "sheet-s"));
  if (w.causal) out.append(svg("path", { d: "M" + left + "," + top + "H" + (left + side) + "V" + (top + side) + "Z", class: "masked" }));
  for (const [size, line] of [[g.BR, "h"], [g.BC, "v"]]) if (size * unit > 4)
    for (let n = size; n < w.N; n += size) out.append(svg("line", line === "h" ? { x1: left, x2: left + side, y1: y(n), y2: y(n), class: "grid" } : { x1: x(n), x2: x(n), y1: top, y2: top + side, class: "grid" }));
  const end = Math.min(w.N, w.end * g.BC), begin = w.first * g.BC, rowsEnd = w.row0 + w.rows;
  if (w.paper) {
    for (let tile = w.first; tile <= now.tile; tile++) {
      const until = tile < now.tile ? w.rowBlocks : now.inner ? now.rowBlock : 0, from = firstRows(w, tile);
      if (until > from) out.append(box(x(tile * g.BC), y(from * g.BR), (Math.min(w.N, (tile + 1) * g.BC) - tile * g.BC) * unit, (Math.min(w.N, until * g.BR) - from * g.BR) * unit, "done"));
    }
  } else {
    const beyond = w.causal ? w.split === w.splits - 1 || w.end === tilesOf(w, w.rowBlock) ? w.N : end : end; // what the mask spares
    if (now.tile !== null && now.tile > w.first) out.append(wideBox(begin, now.tile * g.BC, w.row0, rowsEnd, "done"));
    if (now.tile === null && w.step > 0 && now.part !== w.parts[0]) out.append(wideBox(begin, end, w.row0, rowsEnd, "done"));
    if (beyond > end) out.append(wideBox(end, Math.min(w.N, beyond), w.row0, rowsEnd, "skipped"));
    out.append(wideBox(begin, Math.min(w.N, beyond), w.row0, rowsEnd, "band"));
  }
  if (now.tile !== null) {
    const key1 = Math.min(w.N, (now.tile + 1) * g.BC), paperRows = now.rowBlock === null ? [0, w.N] : [now.rowBlock * g.BR, Math.min(w.N, (now.rowBlock + 1) * g.BR)];
    out.append(wideBox(now.tile * g.BC, key1, ...paperRows, "current"));
  }
  const mark = y(w.row0 + w.row + .5);
  out.append(svg("path", { d: "M" + (left - 3) + "," + mark + "l-7,-4v8z", class: "pointer" }));
  out.append(label(left, top - 8, "keys 0 \u2026 " + grouped(w.N - 1), { class: "soft" }), label(0, 0, "queries", { class: "soft", transform: "translate(12 " + (top + side) + ") rotate(-90)" }));
  out.append(label(left, top + side + 17, "batch " + w.batch + " of " + w.B + ", tiles of " + g.BR + " \u00d7 " + g.BC, { class: "soft" }));
  host.replaceChildren(out);
  map.place = (px, py) => [(px - left) / unit, (py - top) / unit];
}
const map = { place: null }; // of a point in the drawing: key and query

function drawMemory(w) {
  const host = get("memory"), W = Math.max(260, host.clientWidth), { g, now } = w, phone = W < 420, held = contents(w);
  const whats = unique(w.work.parts.flatMap(p => [...p.phases, ...p.inner]).flatMap(p => p.moves).map(m => m.what)).sort((a, b) => "QKVSO".indexOf(a[0]) - "QKVSO".indexOf(b[0]));
  const gap = 10, barY = 38, barH = 20, each = (W - gap * (whats.length - 1)) / whats.length, shareY = 122, shareH = 50, regY = 236, out = art(W, regY + 58);
  const barX = what => whats.indexOf(what) * (each + gap), part = (w.rowBlock === null ? 0 : w.rowBlock);
  const rowsOf = now.rowBlock === null ? [0, 0] : [now.rowBlock * g.BR, Math.min(w.N, (now.rowBlock + 1) * g.BR)];
  const keysOfTile = tile => [tile * g.BC, Math.min(w.N, (tile + 1) * g.BC)];
  out.append(label(0, 14, "Device memory, batch " + w.batch, { class: "head" }));
  for (const what of whats) {
    const x = barX(what), rows = "QSO".includes(what[0]), [a, b] = rows ? (now.inner || !w.paper ? rowsOf : [0, 0]) : now.tile === null ? [0, 0] : keysOfTile(now.tile);
    out.append(box(x, barY, each, barH, "bar " + tintOf(what)));
    if (b > a) out.append(box(Math.min(x + each * a / w.N, x + each - 3), barY, Math.max(3, each * (b - a) / w.N), barH, "part " + tintOf(what)));
    out.append(label(x, barY - 5, what, { class: "small" }));
  }
  const total = sum(w.regions.map(([, bytes]) => bytes)), centre = {};
  const limit = steps.devices[w.device].shared;
  out.append(label(0, shareY - 10, w.regions.length ? "Shared memory: " + bytesText(total) + (phone ? " of " + bytesText(limit) : " of the " + bytesText(limit) + " that a block may have") : "Shared memory: none is used", { class: "head" }));
  if (!w.regions.length) out.append(box(0, shareY, W, shareH, "region empty"));
  const least = 3, slack = W - least * w.regions.length;
  let x = 0;
  for (const [name, bytes] of w.regions) {
    const width = least + slack * bytes / total, has = held[name], read = now.phase.reads.some(r => (r === "stage" ? "stage " + (now.tile ?? 0) % g.stages : r) === name);
    const what = has ? has.what : name.startsWith("stage") ? "K, V" : name, ring = name.startsWith("stage");
    const made = !has && ["S", "P", "\u03b1", "O", "m, l"].includes(name) && w.step > 0;
    out.append(box(x + .5, shareY, width - 1, shareH, "region " + (has || made ? tintOf(what) : "empty") + (has && has.arriving ? " arriving" : "") + (read ? " read" : ""), null));
    centre[name] = x + width / 2;
    const caption = has && has.tile !== null ? "tile " + has.tile : has && has.rowBlock !== null ? "rows " + has.rowBlock : "", title = ring && width < wide(name) + 8 ? name.replace("stage ", "#") : name;
    if (width > wide(title) + 4) out.append(label(x + width / 2, shareY + 20, title, { "text-anchor": "middle" }));
    if (caption && width > wide(caption) + 4) out.append(label(x + width / 2, shareY + 37, caption, { "text-anchor": "middle", class: "small" }));
    else if (caption && has.tile !== null && width > wide(String(has.tile)) + 2) out.append(label(x + width / 2, shareY + 37, String(has.tile), { "text-anchor": "middle", class: "small" }));
    x += width;
  }
  const inShared = w.regions.some(([name]) => name === "S"), scores = w.paper ? [""] : shareText(g, g.scores, g.BC, g.sub, 1), outputs = w.paper ? [""] : shareText(g, g.outputs, g.d, g.d, g.value_blocks);
  const wants = [...(w.work.parts.some(p => p.phases.some(f => f.moves.some(m => m.what === "Q" && m.to === "registers"))) ? [["Q", ["of its rows"]]] : []),
    ["S", inShared && !w.paper ? [scores[0] + ", then shared", ...scores] : scores], ["m, l", [w.work.maximum === "zero" ? "m = 0" : "of each row"]], ["O", outputs]];
  out.append(label(0, regY - 10, w.paper ? "Registers" : "Registers of " + grouped(g.threads) + " threads", { class: "head" }));
  const regW = (W - gap * (wants.length - 1)) / wants.length, regX = {};
  wants.forEach(([what, texts], i) => {
    const rx = i * (regW + gap), does = now.phase.does, lit = (what === "S" && (does === "scores" || does === "sum")) || (what === "m, l" && (does === "sum" || does === "max")) || (what === "O" && does === "values");
    regX[what] = rx + regW / 2;
    out.append(box(rx + .5, regY, regW - 1, 44, "region " + tintOf(what) + (lit ? " read" : "")), label(rx + regW / 2, regY + 18, what, { "text-anchor": "middle" }),
      label(rx + regW / 2, regY + 35, texts.find(text => text.length * 5.9 + 4 < regW) ?? last(texts), { "text-anchor": "middle", class: "small" }));
  });
  const arrow = (x1, y1, x2, y2, words, className) => {
    const middle = (y1 + y2) / 2, down = y2 > y1 ? 1 : -1, tip = y2 - down * 7;
    out.append(svg("path", { d: "M" + x1.toFixed(1) + "," + y1 + "C" + x1.toFixed(1) + "," + middle + " " + x2.toFixed(1) + "," + middle + " " + x2.toFixed(1) + "," + tip, class: "way " + className }),
      svg("path", { d: "M" + x2.toFixed(1) + "," + y2 + "l-4.5," + -down * 8 + "h9z", class: "tip " + className }));
    if (words) out.append(label(Math.max(wide(words) / 2, Math.min(W - wide(words) / 2, (x1 + x2) / 2)), middle + 4, words, { "text-anchor": "middle", class: "halo moving" }));
  };
  const seen = {};
  for (const move of now.phase.moves) {
    const tile = (now.tile ?? w.first) + move.ahead;
    if (move.ahead && tile >= w.end) continue;
    const rows = "rows*d" in move.amount || "rows*N" in move.amount, [a, b] = rows ? rowsOf : keysOfTile(tile), from = barX(move.what) + each * (a + b) / 2 / w.N;
    const bytes = moveBytes(w, move, rowsOf[1] - rowsOf[0], 1, tile, tile + 1), to = regionOf(w, move, tile);
    const inside = centre[to] ?? regX[now.phase.does === "values" ? "O" : move.what] ?? regX.S;
    const low = to === "device" || centre[to] === undefined ? regY - 26 : shareY - 24;
    seen[to] = (seen[to] || 0) + 1;
    if (to === "device") arrow(w.paper ? centre.O : regX[move.what[0] === "S" ? "S" : "O"], w.paper ? shareY - 24 : regY - 26, from, barY + barH + 3, bytesText(bytes), tintOf(move.what));
    else arrow(from, barY + barH + 3, inside, low, bytesText(bytes), tintOf(move.what));
  }
  const target = { scores: "S", sum: "m, l", max: "m, l", values: "O" }[now.phase.does];
  if (target) for (const name of now.phase.reads) {
    const at = name === "stage" ? "stage " + (now.tile ?? 0) % g.stages : name;
    if (centre[at] !== undefined) arrow(centre[at], shareY + shareH + 3, regX[target], regY - 26, "", tintOf(held[at]?.what || name));
  }
  host.replaceChildren(out);
  host.setAttribute("aria-label", w.regions.map(([name, bytes]) => name + " " + bytesText(bytes) + (held[name] ? ", holds " + held[name].what + (held[name].tile === null ? "" : " of tile " + held[name].tile) + (held[name].arriving ? ", arriving" : "") : "")).join("; ") || "no shared memory");
  get("regions").textContent = w.regions.length ? w.regions.map(([name, bytes]) => name + " " + bytesText(bytes)).join(" \u00b7 ") : "";
}
function drawBytes(w) {
  const [read, written] = movedBy(w, w.step), [allRead, allWritten] = movedBy(w, w.count - 1), all = movedByAll(w), flops = 4 * w.B * w.d * (w.causal ? w.N * (w.N + 1) / 2 : w.N * w.N);
  const who = w.work.fused ? "block" : "blocks";
  const line = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  get("bytes").replaceChildren(...line("read by the " + who + " so far", bytesText(read) + " of " + bytesText(allRead)), ...line("written by the " + who + " so far", bytesText(written) + " of " + bytesText(allWritten)),
    ...line(w.paper ? "read by all " + w.B + " blocks" : "read by the whole kernel", bytesText(all[0])), ...line("written by " + (w.paper ? "all" : "the whole kernel"), bytesText(all[1])), ...line("FLOP for each of those bytes", digits(flops / (all[0] + all[1]), 3)));
  get("bytes").dataset.moved = [read, written, allRead, allWritten, ...all].join();
}
function drawOwners(w) {
  const host = get("owners"), { g } = w, warp = w.thread >> 5, W = Math.max(240, host.clientWidth), gap = 14, side = (W - gap) / 2, H = Math.max(120, Math.min(300, 2.4 * g.BR)), top = 20, out = art(W, top + H + 4);
  [["S", g.scores, g.BC], ["O", g.outputs, w.d]].forEach(([name, layout, columns], n) => {
    const x0 = n * (side + gap), cw = side / columns, ch = H / g.BR, paint = (className, test) => { for (const [r, c, rows, cols] of spans(g.BR, columns, test)) out.append(box(x0 + c * cw, top + r * ch, cols * cw, rows * ch, className)); };
    out.append(label(x0, 13, name + ": " + (side < 200 ? g.BR + " \u00d7 " + columns : g.BR + " rows \u00d7 " + columns + (name === "S" ? " keys" : " columns")), { class: "soft" }), box(x0, top, side, H, "sheet-s"));
    paint("odd", (i, j) => (ownerOf(g, layout, i, j) >> 5) % 2 === 1);
    paint("warp", (i, j) => ownerOf(g, layout, i, j) >> 5 === warp);
    paint("lane", (i, j) => holds(g, layout, w.thread, i, j));
    if (w.rows < g.BR) out.append(box(x0, top + w.rows * ch, side, (g.BR - w.rows) * ch, "masked")); // rows past the end
    out.append(svg("line", { x1: x0, x2: x0 + side, y1: top + (w.row + .5) * ch, y2: top + (w.row + .5) * ch, class: "rowline" }));
  });
  host.replaceChildren(out);
  owners.at = (px, py) => { const n = px > side + gap / 2 ? 1 : 0, columns = n ? w.d : g.BC, i = Math.floor((py - top) / H * g.BR), j = Math.floor((px - n * (side + gap)) / side * columns);
    return i >= 0 && i < g.BR && j >= 0 && j < columns ? ownerOf(g, n ? g.outputs : g.scores, i, j) : null; };
  const device = steps.devices[w.device], launches = g.launches.map(([symbol, threads], i) => symbol + " " + grouped(w.grids[i]) + " \u00d7 " + threads).join(", ");
  const tiles = grouped(w.blocks) + (w.work.fused ? " = " : " tiles of rows = ") + w.B + " batches \u00d7 " + grouped(w.rowBlocks) + (w.work.fused ? " blocks of rows" : "") + (w.splits > 1 ? " \u00d7 " + w.splits + " splits of the keys" : "");
  const sms = w.work.fused ? ", on " + device.sms + " multiprocessors" + (g.resident ? " that hold " + g.resident + " each" : "") : "; followed are the blocks of each launch that work on one";
  const keys = w.splits > 1 ? ", keys " + from0(w.first * g.BC, keysIn(w, w.first, w.end)) : "";
  const line = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  get("hierarchy").replaceChildren(...line("grid", tiles + sms), ...line("launches", launches + " threads"),
    ...line((w.work.fused ? "block " : "tile ") + w.block, "batch " + w.batch + ", queries " + from0(w.row0, w.rows) + keys + ": " + g.threads + " threads, " + g.threads / 32 + " warps"),
    ...line("warp " + warp, "threads " + from0(warp * 32, 32)), ...line("lane " + w.thread % 32, "thread " + w.thread + ": " + held(w, g.scores, g.BC, "S") + "; " + held(w, g.outputs, w.d, "O")));
}
const owners = { at: null }; // of a point in the drawing: the thread that has the element
function held(w, layout, columns, name) {
  const rows = new Set(), across = new Set();
  let count = 0;
  for (let i = 0; i < w.g.BR; i++) for (let j = 0; j < columns; j++) if (holds(w.g, layout, w.thread, i, j)) { rows.add(i); across.add(j); count++; }
  const part = layout.copies > 1 ? " (" + layout.copies + " lanes share them)" : "";
  return count ? count + " of " + name + " in row" + (rows.size > 1 ? "s " : " ") + few([...rows]) + part : "nothing of " + name;
}
function few(list) { // 0–3, 16–19
  const runs = [];
  for (const n of list) if (runs.length && last(runs)[1] === n - 1) last(runs)[1] = n; else runs.push([n, n]);
  const words = runs.map(([a, b]) => a === b ? String(a) : a + "\u2013" + b);
  return words.length > 4 ? words.slice(0, 3).join(", ") + ", \u2026 " + last(words) : words.join(", ");
}
const figure = x => x === -Infinity ? "\u2212\u221e" : Number.isFinite(x) ? (x && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6) ? x.toExponential(3) : x.toPrecision(6)).replaceAll("-", "\u2212") : "\u2013";
function drawNumbers(w) {
  const all = rowNumbers(w), count = w.end - w.first, done = Object.fromEntries(["scores", "max", "sum", "values"].map(does => [does, progress(w, does)]));
  const stored = w.now.phase.does === "done", first = w.work.maximum === "first", tile = Math.max(0, Math.min(count - 1, (w.now.tile ?? (w.step && w.now.part !== w.parts[0] ? w.end - 1 : w.first)) - w.first));
  const now = { m: first ? (done.max >= count ? all.highest : done.max ? all.tops[done.max - 1] : -Infinity) : all.after[Math.min(count, done.sum)].m, l: all.after[Math.min(count, done.sum)].l, O: all.after[Math.min(count, done.values)].O };
  const here = count ? all.after[tile + 1] : null, weighed = count > 0 && done.sum > tile, scored = count > 0 && (done.scores > tile || weighed || (first && done.max > tile));
  const begin = tile * w.g.BC, s = [...all.s.subarray(begin, begin + w.g.BC)], host = get("scores"), W = Math.max(240, host.clientWidth), H = 150, left = 34, out = art(W, H), bar = (W - left) / w.g.BC, half = 70;
  const finite = s.filter(Number.isFinite), low = Math.min(0, ...finite), high = Math.max(0, ...finite, ...(Number.isFinite(now.m) ? [now.m] : [])), y = v => 14 + (half - 14) * (high === low ? 0 : (high - v) / (high - low));
  out.append(label(0, (scored ? y(0) : half) + 4, "S", {}), label(0, H - 14, "P", {}), svg("line", { x1: left, x2: W, y1: scored ? y(0) : half, y2: scored ? y(0) : half, class: "axis" }), svg("line", { x1: left, x2: W, y1: H - 10, y2: H - 10, class: "axis" }));
  if (scored) s.forEach((v, j) => {
    if (v === -Infinity) out.append(box(left + j * bar, 14, bar, half - 14, "masked-key"));
    else out.append(box(left + j * bar + bar * .12, Math.min(y(0), y(v)), bar * .76, Math.max(.8, Math.abs(y(v) - y(0))), "bar-s"));
  });
  else out.append(label(left + 6, 46, count ? "no scores of tile " + (w.first + tile) + " yet" : "the mask leaves this block no keys", { class: "soft" }));
  if (Number.isFinite(now.m) && scored) out.append(svg("line", { x1: left, x2: W, y1: y(now.m), y2: y(now.m), class: "roof" }), label(W - 2, y(now.m) - 4 < 10 ? y(now.m) + 12 : y(now.m) - 4, "m", { "text-anchor": "end", class: "halo" }));
  if (weighed) {
    const ps = s.map(v => all.power(v - here.m)), most = Math.max(1e-300, ...ps);
    ps.forEach((p, j) => out.append(box(left + j * bar + bar * .12, H - 10 - 50 * p / most, bar * .76, Math.max(p ? .8 : 0, 50 * p / most), "bar-p")));
    out.append(label(left, H - 62, "up to " + figure(most), { class: "soft small halo" }));
  } else out.append(label(left + 6, H - 26, scored ? "not weighed yet" : "", { class: "soft" }));
  host.replaceChildren(out);
  const looped = does => w.parts.some(part => part.tiles && [...part.phases, ...part.inner].some(phase => phase.does === does));
  const was = does => all.after[looped(does) ? Math.min(tile, done[does]) : Math.min(count, done[does])], powerName = w.base === 1 ? "e" : "2", over = stored || w.work.divided;
  const value = (x, l) => figure(over ? (l ? x / l : NaN) : x);
  const rows = [["m", first ? "" : figure(was("sum").m), figure(now.m)], ["\u03b1 = " + powerName + "^(m before \u2212 m)", "", weighed && !first ? figure(here.alpha) : "\u2013"], ["\u03a3P of the tile", "", weighed ? figure(here.added) : "\u2013"], ["l", figure(was("sum").l), figure(now.l)],
    ...now.O.map((x, c) => [(over ? "O / l" : "O") + "[" + c + "]", value(was("values").O[c], w.kernel === "naive" && !w.paper ? now.l : was("values").l), value(x, w.paper ? all.after[done.values].l : now.l)])];
  get("row-table").tBodies[0].replaceChildren(...rows.map(([name, before, after]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, before), el("td", {}, after))));
  get("row-before").textContent = count ? "before tile " + (w.first + tile) : "before";
  get("row-table").dataset.now = JSON.stringify({ m: now.m, l: now.l, O: now.O, tiles: done.values });
  get("row-words").textContent = "Query " + (w.row0 + w.row) + " of batch " + w.batch + ", with made-up numbers in [\u22123, 3), in double. Scores are " + (w.base === 1 ? "q\u00b7k/\u221ad" : "q\u00b7k log2(e)/\u221ad, so that e^x is 2^s") + ".";
}

function missing(w) { // what a tile of scores lacks
  const { now, g } = w;
  if (now.phase.does !== "scores" || now.tile === null) return "";
  const keys = keysIn(w, now.tile, now.tile + 1), row0 = (now.rowBlock ?? w.rowBlock) * g.BR, last = now.tile * g.BC + keys - 1;
  const tail = keys < g.BC ? " Only " + keys + " of the tile's " + g.BC + " keys are there: the others count for nothing." : "";
  return tail + (w.causal && last > row0 ? now.tile * g.BC >= Math.min(w.N, row0 + g.BR) ? " The mask leaves nothing of this tile." : " The diagonal crosses this tile: the mask cuts off what is above it." : "");
}

// ---- banks: what a load of a warp takes whose lanes each read from a row of their own
// Words of 4 bytes that the lanes ask each of the 32 banks for: of so many lanes at a time as together load 128 bytes.
function bankedWords(stride, wide) {
  return [...Array(wide).keys()].map(turn => {
    const banks = [...Array(32)].map(() => new Set());
    for (let lane = turn * 32 / wide; lane < (turn + 1) * 32 / wide; lane++)
      for (let x = 0; x < wide; x++) banks[(lane * stride + x) % 32].add(lane * stride + x);
    return banks.map(words => words.size);
  });
}
const wavefronts = (stride, wide) => sum(bankedWords(stride, wide).map(counts => Math.max(...counts)));
function drawBanks(w) {
  const wide = [1, 2, 4].includes(Number(state.wide)) ? Number(state.wide) : 1, asked = Math.round(Number(state.stride));
  const stride = asked >= 1 && asked <= 4096 ? asked : w.d, host = get("banks");
  if (get("stride") !== document.activeElement) get("stride").value = stride;
  options("wide", [["1", "4 bytes"], ["2", "8 bytes"], ["4", "16 bytes"]], String(wide));
  const counts = bankedWords(stride, wide)[0], most = Math.max(...counts), W = Math.max(260, host.clientWidth), high = 64, each = W / 32, out = art(W, high + 18);
  counts.forEach((words, bank) => out.append(svg("rect", { x: (bank * each).toFixed(2), y: (high * (1 - words / most)).toFixed(2), width: (each - 1.5).toFixed(2), height: (high * words / most).toFixed(2), class: words > 1 ? "doing a2 here" : "doing a0 here" }, svg("title", {}, "bank " + bank + ": " + grouped(words) + (words === 1 ? " word" : " words")))));
  for (const bank of [0, 8, 16, 24]) out.append(label(bank * each, high + 14, (bank ? "" : "bank ") + bank, { class: "soft small" }));
  host.replaceChildren(out);
  const taken = wavefronts(stride, wide), row = grouped(stride) + (stride === 1 ? " float" : " floats"), free = [stride, stride + 1, stride + 2, stride + 3, stride + 4].find(one => one % wide === 0 && wavefronts(one, wide) === wide);
  get("bank-words").textContent = stride % wide ? "A load of " + 4 * wide + " bytes needs rows that begin at multiples of that: " + row + " are none."
    : "32 lanes, each in a row of its own, rows " + row + " apart: " + grouped(taken) + (taken === 1 ? " access" : " accesses") + " where " + wide + " would do" + (taken > wide ? ", " + digits(taken / wide, 3) + " times as many" + (free ? "; none too many with rows of " + grouped(free) + " floats." : ".") : ": no conflict.")
      + (wide > 1 ? " Drawn: the first " + 32 / wide + " lanes." : "");
  host.setAttribute("aria-label", get("bank-words").textContent);
}

// ---- one block in time, where a record has it
const WINDOW = 4; // tiles that are shown at once
let shownTimeline = -1; // the record that the block is from
function drawTimeline(w) {
  shownTimeline = -1;
  const elsewhere = t => !steps.kernels.includes(t.kernel); // a kernel of arrays: no steps of its own are here
  const own = data.timelines.map((t, i) => ({ ...t, i })).filter(t => (t.kernel === w.kernel || elsewhere(t)) && t.spans.length), host = get("spans");
  get("timeline-card").hidden = !own.length || w.paper;
  if (!own.length || w.paper) return;
  const mine = own.filter(one => one.kernel === w.kernel);
  const t = own.find(one => String(one.i) === state.timeline) || mine.find(one => one.shape.join() === [w.B, w.N, w.d].join()) || mine[0] || own[0], record = data.records[t.record];
  options("timeline", own.map(one => [String(one.i), (elsewhere(one) ? one.kernel + " on " : "") + "(" + one.shape.join(", ") + "), block " + one.block + ", " + short(data.records[one.record].gpu) + ", " + data.records[one.record].name]), String(t.i));
  get("timeline").closest("label").hidden = false;
  shownTimeline = t.record;
  const tiles = unique(t.spans.map(([, tile]) => tile)).sort((a, b) => a - b), most = last(tiles), at = Math.max(0, Math.min(most, Math.floor(((w.now.tile ?? w.first) - w.first) * w.g.BC / t.keys)));
  const from = Math.max(0, Math.min(at, most - WINDOW + 1)), inside = t.spans.filter(([, tile]) => tile >= from && tile < from + WINDOW), warps = unique(t.spans.map(([warp]) => warp)).sort((a, b) => a - b);
  const rows = warps.flatMap(warp => unique(t.spans.filter(s => s[0] === warp).map(s => s[2])).sort((a, b) => a - b).map(activity => [warp, activity]));
  const high = Math.max(...inside.map(s => s[4])), computes = inside.filter(s => !t.activities[s[2]].startsWith("copy")), begins = Math.min(...(computes.length ? computes : inside).map(s => s[3]));
  const low = Math.max(Math.min(...inside.map(s => s[3])), begins - .15 * (high - begins)), W = Math.max(260, host.clientWidth), left = W < 500 ? 52 : 64, thick = 9, gap = 6;
  let y = 6;
  const places = new Map(), out = art(W, 10), x = clock => left + (W - left - 8) * (clock - low) / (high - low || 1);
  warps.forEach(warp => {
    const top = y;
    for (const [of, activity] of rows) if (of === warp) { places.set(warp + "," + activity, y); y += thick; }
    out.append(label(0, (top + y) / 2 + 4, "warp " + warp, { class: "soft small" }));
    y += gap;
  });
  const scale = linearScale(high - low, left, W - 8);
  for (const tick of scale.ticks) out.append(svg("line", { class: "grid", x1: scale(tick), x2: scale(tick), y1: 2, y2: y }), label(scale(tick), y + 15, grouped(tick), { class: "soft small", "text-anchor": tick ? "middle" : "start" }));
  for (const [warp, tile, activity, begin, end] of inside) if (end > low) // copies may have been asked for long before
    out.append(svg("rect", { x: x(Math.max(low, begin)).toFixed(2), y: places.get(warp + "," + activity), width: Math.max(1, x(end) - x(Math.max(low, begin))).toFixed(2), height: thick - 1.5, class: "doing a" + activity + (tile === at ? " here" : "") }, svg("title", {}, t.activities[activity] + ", tile " + tile + ", warp " + warp + ": " + grouped(end - begin) + " clocks")));
  out.append(label(left, y + 32, "clocks", { class: "soft" }));
  out.setAttribute("viewBox", "0 0 " + W + " " + (y + 38));
  out.setAttribute("height", y + 38);
  host.replaceChildren(out);
  const mean = activity => { const spans = t.spans.filter(s => s[2] === activity); return spans.length ? sum(spans.map(s => s[4] - s[3])) / spans.length : null; };
  const means = t.activities.map((name, i) => [name, mean(i)]).filter(([, clocks]) => clocks !== null);
  refill(get("activities"), t.activities.map((name, i) => mean(i) === null ? [] : el("li", {}, el("span", { class: "entry" }, svg("svg", { class: "swatch", viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("rect", { x: 1, y: 3, width: 12, height: 8, class: "doing here a" + i })), name))).flat());
  get("timeline-words").textContent = "Tiles " + from + " to " + Math.min(most, from + WINDOW - 1) + " of those recorded, of " + t.keys + " keys each; the strong one is tile " + at + ". On average: " + means.map(([name, clocks]) => name + " " + grouped(clocks) + " clocks").join(", ") + ".";
  host.setAttribute("aria-label", get("timeline-words").textContent);
  get("timeline-method").textContent = record.facts + " \u00b7 " + record.method;
}

// ---- the view
function drawSteps() {
  const w = walk = chooseWalk();
  options("steps-kernel", steps.kernels.map(name => [name, name]), w.kernel);
  options("shape", steps.cases.map(([name, B, N, d]) => [name, (name === B + "x" + N + "x" + d ? "" : name + " ") + "(" + B + ", " + N + ", " + d + ")"]), steps.cases[w.at][0]);
  options("cc", steps.devices.map(one => [String(one.cc), (one.cc / 10).toFixed(1) + ", " + one.sms + " SMs"]), String(steps.devices[w.device].cc));
  segments("mask", [["", "full"], ["causal", "causal"]], state.mask === "causal" ? "causal" : "", FRESH);
  segments("order", [["", "the kernel's"], ["1", "Algorithm 1"]], w.paper ? "1" : "", FRESH);
  get("refusal").textContent = w.refusal ? w.refusal[0].toUpperCase() + w.refusal.slice(1) + ". Choose another kernel, workload or GPU." : "";
  get("refusal").hidden = !w.refusal;
  get("walk").hidden = Boolean(w.refusal);
  if (w.refusal) return stop();
  const { now, g } = w, tiles = w.end - w.first;
  get("step-name").textContent = now.phase.name + (now.tile === null ? "" : ", tile " + now.tile);
  const next = now.tile !== null && now.phase.moves.length ? now.tile + now.phase.moves[0].ahead : null;
  const keys = now.tile === null ? "" : from0(now.tile * g.BC, keysIn(w, now.tile, now.tile + 1)), r = now.rowBlock === null ? 0 : now.rowBlock;
  get("step-text").textContent = now.phase.text.replace("{tile}", now.tile).replace("{keys}", keys).replace("{rows}", from0(r * g.BR, Math.min(g.BR, w.N - r * g.BR)))
    .replace("{next}", next === null ? "" : next < w.end ? "tile " + next + " into stage " + next % g.stages + ", of whose tile no value is wanted any more." : "no tile is left to ask for.") + missing(w);
  get("step-count").textContent = "step " + grouped(w.step + 1) + " of " + grouped(w.count);
  const slider = get("step");
  slider.max = w.count - 1;
  slider.value = w.step;
  slider.setAttribute("aria-valuetext", get("step-count").textContent + ": " + get("step-name").textContent);
  for (const [id, high, value] of [["block", w.blocks - 1, w.block], ["row", w.paper ? w.N - 1 : w.rows - 1, w.paper ? w.query : w.row], ["thread", g.threads - 1, w.thread]]) {
    get(id).max = high;
    if (!playing || get(id) !== document.activeElement) get(id).value = value; // nobody's typing is lost to a step
  }
  const all = w.causal && !w.paper ? tilesOf(w, w.rowBlock) : tiles, share = w.splits > 1 ? " This split takes " + (tiles === 1 ? "1 of them." : tiles + " of them.") : "";
  get("skips").textContent = w.paper ? "Outer loop: tiles of keys. Inner loop: tiles of rows" + (w.causal ? ", from the diagonal on." : ".") : w.causal && all < w.tiles ? "The mask spares these rows " + (w.tiles - all) + " of " + w.tiles + " tiles of keys: they are never loaded." + share
    : state.mask === "causal" && !w.causal ? "The steps of this kernel are shown without the mask." : "This block takes " + (tiles === 1 ? "1 tile" : tiles + " tiles") + " of keys, one after the other.";
  get("steps-note").textContent = w.work.note;
  for (const [id, disabled] of [["to-first", !w.step], ["back", !w.step], ["forward", w.step === w.count - 1], ["to-last", w.step === w.count - 1]]) get(id).disabled = disabled;
  drawMap(w);
  drawMemory(w);
  drawBytes(w);
  drawTimeline(w);
  drawBanks(w);
  get("owners").closest(".sheet").hidden = w.paper; // the paper says nothing of threads
  if (!w.paper) drawOwners(w);
  drawNumbers(w);
}
const go = step => { if (walk && !walk.refusal) change({ step: String(Math.max(0, Math.min(walk.count - 1, step))) }); };
let playing = null;
function stop() {
  clearInterval(playing);
  playing = null;
  get("play").textContent = "Play";
  get("step-text").setAttribute("aria-live", "polite");
}
function play() {
  if (playing) return stop();
  if (walk.step === walk.count - 1) go(0);
  get("play").textContent = "Pause";
  get("step-text").setAttribute("aria-live", "off"); // or a reader would read all of them
  playing = setInterval(() => { if (state.view !== "steps" || walk.refusal || walk.step >= walk.count - 1) stop(); else go(walk.step + 1); }, 1000);
}
const FRESH = { block: "", row: "", thread: "", step: "" };
for (const [id, name] of [["steps-kernel", "kernel"], ["shape", "shape"], ["cc", "cc"]]) get(id).addEventListener("change", event => { stop(); change({ ...FRESH, [name]: event.target.value }); });
for (const id of ["timeline", "stride", "wide"]) get(id).addEventListener("change", event => change({ [id]: event.target.value }));
for (const id of ["block", "row", "thread"]) get(id).addEventListener("change", event => change(id === "block" ? { block: event.target.value, step: "" } : { [id]: event.target.value }));
get("step").addEventListener("input", event => { stop(); state.step = event.target.value; draw(); });
get("step").addEventListener("change", event => go(Number(event.target.value)));
for (const [id, to] of [["to-first", () => 0], ["back", () => walk.step - 1], ["forward", () => walk.step + 1], ["to-last", () => walk.count - 1]]) get(id).addEventListener("click", () => { stop(); go(to()); });
get("play").addEventListener("click", play);
get("map").addEventListener("click", event => {
  const at = event.currentTarget.getBoundingClientRect(), [key, query] = map.place(event.clientX - at.left, event.clientY - at.top), r = Math.floor(query / walk.g.BR);
  if (r < 0 || r >= walk.rowBlocks) return;
  if (walk.paper) return change({ row: String(r * walk.g.BR) });
  const tile = Math.max(0, Math.min(walk.tiles - 1, Math.floor(key / walk.g.BC))), splits = [...Array(walk.splits).keys()];
  const split = splits.find(s => tile < keysOf(walk, r, s)[1]) ?? walk.splits - 1;
  change({ block: String(blockOf(walk, walk.batch, r) * walk.splits + split), step: "" });
});
get("owners").addEventListener("click", event => {
  const at = event.currentTarget.getBoundingClientRect(), thread = owners.at(event.clientX - at.left, event.clientY - at.top);
  if (thread !== null) change({ thread: String(thread) });
});
document.addEventListener("keydown", event => {
  if (state.view !== "steps" || !walk || walk.refusal || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, input:not([type=range]), [role=tablist]")) return;
  if (event.key === " " && !event.target.closest("button")) { event.preventDefault(); return play(); }
  const to = { ArrowRight: walk.step + 1, ArrowLeft: walk.step - 1, Home: 0, End: walk.count - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  stop();
  go(to);
});
