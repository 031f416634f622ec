"use strict";
// Everything that comes from a run becomes a text node or an attribute, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows;
rows.forEach((row, i) => { row.i = i; });

const ORDER = ["DIFFERENT", "LAYOUT", "MISSING", "SUSPECT", "ROUNDING", "IDENTICAL", "not checked"];
const MARKS = { DIFFERENT: "✕", LAYOUT: "▦", MISSING: "∅", SUSPECT: "?", ROUNDING: "≈", IDENTICAL: "=", "not checked": "–" };
// Verdicts by how bad they are; as the command has them.
const BADNESS = ["not checked", "IDENTICAL", "ROUNDING", "SUSPECT", "MISSING", "LAYOUT", "DIFFERENT"];
const CLASS_DIFFERS = Infinity;

const byId = (id) => document.getElementById(id);
const verdictOf = (row) => row.verdict ?? "not checked";
const isBad = (row) => BADNESS.indexOf(verdictOf(row)) > BADNESS.indexOf("ROUNDING");

/** An element with attributes and children; strings are text. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "path", "text", "line"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** A name that may be broken after its dots. */
const broken = (name) => name.split(/(?<=[._/])/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));

const verdictMark = (verdict) => make("span", { class: "verdict", "data-verdict": verdict }, verdict);

// Numbers

/** Three digits, as in the command's table. */
function short(x) {
  if (x === null || x === undefined) return "";
  if (x === CLASS_DIFFERS) return "NaN/inf";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(size >= 1e15 ? 0 : 1).replace("e+", "e");
  return String(Number(x.toPrecision(3)));
}
const whole = (n) => n.toLocaleString("en").replaceAll(",", "\u202f");
const plural = (n, what) => `${whole(n)} ${what}${n === 1 ? "" : "s"}`;

/** Ascending numbers as ranges: 0-3, 7. */
function ranges(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

// Colours: the same error has the same colour on every page.

const LOWEST = 0.1;
const HIGHEST = 1e5;
let scale = [];
let special = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => [1, 3, 5].map((at) => parseInt(style.getPropertyValue(name).trim().slice(at, at + 2), 16));
  const stops = Array.from({ length: 8 }, (_, i) => rgb(`--scale-${i}`));
  scale = Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * 7;
    const low = Math.min(6, Math.floor(at));
    return stops[low].map((c, k) => Math.round(c + (stops[low + 1][k] - c) * (at - low)));
  });
  special = { same: rgb("--same"), class: rgb("--class"), plain: rgb("--plain") };
}

/** The colour of an error: 0 is the same, null has no units. */
function colour(error) {
  if (error === null || error === undefined) return special.plain;
  if (error === CLASS_DIFFERS) return special.class;
  if (error === 0) return special.same;
  const at = Math.log(error / LOWEST) / Math.log(HIGHEST / LOWEST);
  return scale[Math.round(255 * Math.min(1, Math.max(0, at)))];
}
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
/** Black or white, whichever is read on a colour. */
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff");

function drawLegend() {
  const ramp = make("span", { class: "ramp", "aria-hidden": true });
  const stops = scale.filter((_, i) => i % 15 === 0).map(css);
  ramp.append(make("i", { style: `background: linear-gradient(to right, ${stops})` }));
  const decades = Math.log10(HIGHEST / LOWEST);
  for (let i = 0; i <= decades; i++) {
    const value = LOWEST * 10 ** i;
    ramp.append(make("span", { style: `left: ${(100 * i) / decades}%` }, value >= 1e4 ? `10${"⁰¹²³⁴⁵"[Math.round(Math.log10(value))]}` : String(Number(value.toPrecision(1)))));
  }
  const swatch = (rgb, text) => make("span", {}, make("i", { class: "swatch", style: `background: ${css(rgb)}` }), text);
  byId("legend").replaceChildren(
    make("span", { class: "scale" }, "error in rounding units, by rank from left to right ", ramp),
    swatch(special.same, "the same"),
    swatch(special.class, "NaN or inf on one side"),
    swatch(special.plain, "differs, has no units"),
  );
}

// What a row says of each rank

/** The largest error of a rank's part, as `colour` takes it; undefined where the rank has no part of it. */
function errorOf(row, rank) {
  const own = row.by_rank.find((of) => of.rank === rank);
  if (!own) return undefined;
  if (own.max_units !== null) return own.max_units;
  if (!row.ranks.includes(rank) || row.verdict === "IDENTICAL") return 0;
  return row.nan > 0 || row.max_units !== null ? CLASS_DIFFERS : null;
}

/** The largest error of the row. */
function errorOfRow(row) {
  if (row.verdict === "IDENTICAL") return 0;
  const of = row.by_rank.map((own) => errorOf(row, own.rank));
  if (of.includes(CLASS_DIFFERS) || row.nan > 0) return CLASS_DIFFERS;
  return row.max_units;
}

const size = (error) => (error === null || error === undefined ? -1 : error);
const worse = (a, b) => BADNESS.indexOf(verdictOf(b)) - BADNESS.indexOf(verdictOf(a)) || size(errorOfRow(b)) - size(errorOfRow(a)) || a.i - b.i;

/** `tap, step 1, call 2, dp=1`. */
function placeOf(row) {
  return [row.tap, `step ${row.step}`, row.call ? `call ${row.call}` : "", row.group ?? ""].filter(Boolean).join(", ");
}

function describe(row) {
  const error = errorOfRow(row);
  const units = error === CLASS_DIFFERS ? ", NaN or inf on one side" : error === null ? "" : `, ${short(error)} units`;
  const ranks = row.ranks.length ? `, rank ${ranges(row.ranks)}` : "";
  return `${placeOf(row)}: ${verdictOf(row)}${units}${ranks}`;
}

// State

const steps = [...new Set(rows.map((row) => row.step))].sort((a, b) => a - b);
const first = rows.find((row) => row.verdict === "DIFFERENT") ?? rows.find((row) => row.verdict === "LAYOUT");
const state = {
  verdicts: new Set(ORDER),
  step: String((first ?? rows[0])?.step ?? ""),
  tap: "",
  view: "layers",
  open: null,
  limit: 1000,
};

/** Text anywhere in the name, or a pattern for all of it where it has a `*`. */
function matcher(text) {
  if (!text.includes("*")) return (tap) => tap.toLowerCase().includes(text.toLowerCase());
  const escape = (part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = new RegExp(`^${text.split("*").map(escape).join(".*")}$`, "is");
  return (tap) => pattern.test(tap);
}

function chosen() {
  const matches = matcher(state.tap.trim());
  return rows.filter((row) =>
    (state.step === "all" || String(row.step) === state.step) && state.verdicts.has(verdictOf(row)) && matches(row.tap));
}

// The heat map: lines of cells, each with the rows that it stands for

const DIGITS = /\d+/;
const kindOf = (tap) => tap.replace(/\d+/g, "*");

/** Kinds of which several layers have a tap; a number in a lone name is no layer's. */
const layered = new Set();
{
  const tapOfKind = new Map();
  for (const { tap } of rows) {
    const kind = kindOf(tap);
    if (kind !== tap && (tapOfKind.get(kind) ?? tap) !== tap) layered.add(kind);
    tapOfKind.set(kind, tap);
  }
}
const layerOf = (tap) => (layered.has(kindOf(tap)) ? tap.match(DIGITS)[0] : undefined);

/** Layers down, kinds of taps across; a tap of no layer has a line to itself. */
function layerLines(shown) {
  const columns = [...new Set(shown.map((row) => kindOf(row.tap)))].filter((kind) => layered.has(kind));
  const at = new Map(columns.map((kind, i) => [kind, i]));
  const lines = new Map();
  for (const row of shown) {
    const layer = layerOf(row.tap);
    const key = layer === undefined ? `tap ${row.tap}` : `layer ${layer}`;
    if (!lines.has(key)) lines.set(key, { name: layer ?? row.tap, isTap: layer === undefined, cells: [] });
    const column = layer === undefined ? 0 : at.get(kindOf(row.tap));
    (lines.get(key).cells[column] ??= []).push(row);
  }
  return { columns, lines: [...lines.values()] };
}

function drawLayers(shown) {
  const { columns, lines } = layerLines(shown);
  const prefix = commonPrefix(columns);
  const corner = make("th", { scope: "col" }, prefix ? `layer of ${prefix.replace(/\.$/, "")}` : "layer");
  const heads = columns.map((kind) => make("th", { scope: "col", title: kind }, make("span", {}, kind.slice(prefix.length) || kind)));
  const body = lines.map((line) => {
    const cells = Array.from({ length: Math.max(1, columns.length) }, (_, i) => {
      const of = line.cells[i];
      return of ? cellOf(of) : make("td", { class: "none" });
    });
    return make("tr", {}, make("th", { scope: "row", class: line.isTap ? "tap" : "", title: line.name }, line.name), ...cells);
  });
  return make("table", { role: "grid", "aria-label": "errors by layer and kind of tap" }, make("thead", {}, make("tr", {}, corner, ...heads)), make("tbody", {}, ...body));
}

/** What all names begin with, up to a dot. */
function commonPrefix(names) {
  if (names.length < 2) return "";
  let prefix = names[0];
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix.slice(0, prefix.lastIndexOf(".") + 1);
}

/** The worst row of a cell colours it, rank by rank. */
function cellOf(of) {
  const row = [...of].sort(worse)[0];
  const verdict = verdictOf(row);
  const strips = row.by_rank.map((own) => css(colour(errorOf(row, own.rank))));
  const parts = strips.length ? strips : [css(colour(errorOfRow(row)))];
  const stops = parts.map((c, i) => `${c} ${(100 * i) / parts.length}% ${(100 * (i + 1)) / parts.length}%`);
  const more = of.length > 1 ? ` (the worst of ${of.length})` : "";
  const isPlain = ["LAYOUT", "MISSING", "not checked"].includes(verdict);
  const cell = make("td", {
    class: `cell ${verdict === "not checked" ? "unchecked" : verdict}`,
    role: "gridcell",
    tabindex: -1,
    title: describe(row) + more,
    "aria-label": describe(row) + more,
  }, make("div", {}, make("span", { class: "mark" }, MARKS[verdict]), make("i", { style: isPlain ? undefined : `background: linear-gradient(to right, ${stops})` })));
  cell.rows = of;
  return cell;
}

function drawRanks(shown) {
  const ranks = [...new Set(shown.flatMap((row) => [...row.by_rank.map((own) => own.rank), ...row.ranks]))].sort((a, b) => a - b);
  const severalSteps = state.step === "all" && steps.length > 1;
  const heads = ["all", ...ranks.map((rank) => `rank ${rank}`)].map((name) => make("th", { scope: "col" }, name));
  const body = shown.slice(0, state.limit).map((row) => {
    const name = severalSteps || row.call || row.group ? placeOf(row) : row.tap;
    const head = make("th", { scope: "row", class: "tap", title: name }, verdictMark(verdictOf(row)), " ", ...broken(name));
    const cells = ranks.map((rank) => rankCell(row, rank));
    return make("tr", {}, head, numberCell(row, errorOfRow(row), ""), ...cells);
  });
  const table = make("table", { role: "grid", "aria-label": "errors by tap and rank" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "tap"), ...heads)), make("tbody", {}, ...body));
  if (shown.length <= state.limit) return table;
  const more = make("button", { type: "button", class: "more", onclick: () => { state.limit = Infinity; draw(); } }, `show ${plural(shown.length - state.limit, "more row")}`);
  return make("div", {}, table, more);
}

function rankCell(row, rank) {
  const error = errorOf(row, rank);
  if (error === undefined && !row.ranks.includes(rank)) return make("td", { class: "none" });
  return numberCell(row, error, `, rank ${rank}`, row.ranks.includes(rank) && isBad(row));
}

function numberCell(row, error, of, guilty = false) {
  const verdict = verdictOf(row);
  const isPlain = ["LAYOUT", "MISSING", "not checked"].includes(verdict);
  const hasNumber = !isPlain && error > 0;
  const mark = (isPlain || guilty) && MARKS[verdict];
  // A sum's ranks have no errors of their own.
  const background = colour(error === undefined ? 0 : error);
  const label = `${placeOf(row)}${of}: ${verdict}${hasNumber ? `, ${short(error)} units` : ""}`;
  const cell = make("td", {
    class: `cell ${verdict === "not checked" ? "unchecked" : verdict}`,
    role: "gridcell",
    tabindex: -1,
    title: label,
    "aria-label": label,
    style: isPlain ? undefined : `background: ${css(background)}; color: ${inkOn(background)}`,
  }, mark ? make("span", { class: "mark" }, mark) : "", hasNumber ? ` ${short(error)}` : "");
  cell.rows = [row];
  return cell;
}

// Drawing and moving about

const map = byId("map");
let matrix = [];

function draw() {
  const shown = chosen();
  map.className = state.view;
  const nothing = rows.length ? "no row has this step, verdict and tap" : "there are no rows: nothing was compared";
  map.replaceChildren(shown.length ? (state.view === "layers" ? drawLayers(shown) : drawRanks(shown)) : make("p", { class: "empty" }, nothing));
  matrix = [...map.querySelectorAll("tbody tr")].map((line) => [...line.querySelectorAll("td")].map((cell) => (cell.rows ? cell : null)));
  const start = cellOfRow(state.open ?? first) ?? map.querySelector("td.cell");
  start?.setAttribute("tabindex", "0");
  cellOfRow(state.open)?.classList.add("open");
  cellOfRow(first)?.classList.add("first");
  const bad = shown.filter(isBad).length;
  byId("status").textContent = `${plural(shown.length, "row")} shown of ${whole(rows.length)}, ${whole(bad)} of them beyond rounding`;
}

/** Shows what the reader came for: the row that is open, or the first divergence. */
function reveal() {
  const cell = cellOfRow(state.open) ?? cellOfRow(first);
  if (!cell) return;
  const [of, box] = [cell.getBoundingClientRect(), map.getBoundingClientRect()];
  map.scrollTop += (of.top + of.bottom) / 2 - (box.top + box.bottom) / 2;
}

function cellOfRow(row) {
  if (!row) return undefined;
  return matrix.flat().find((cell) => cell?.rows.includes(row));
}

function focusCell(cell) {
  map.querySelector('td[tabindex="0"]')?.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
  cell.focus();
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The nearest cell from a place on in a direction, over gaps. */
function move(y, x, dy, dx) {
  for (let i = 1; i <= Math.max(matrix.length, matrix[0].length); i++) {
    const cell = matrix[y + i * dy]?.[x + i * dx];
    if (cell) return cell;
  }
  return undefined;
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

map.addEventListener("keydown", (event) => {
  const cell = event.target.closest("td.cell");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  const y = matrix.findIndex((line) => line.includes(cell));
  const x = matrix[y].indexOf(cell);
  const page = Math.max(1, Math.floor(map.clientHeight / 21) - 3);
  const column = matrix.map((line) => line[x]);
  let target;
  if (ARROWS[event.key]) target = move(y, x, ...ARROWS[event.key]);
  else if (event.key === "Home") target = matrix[y].find(Boolean);
  else if (event.key === "End") target = matrix[y].findLast(Boolean);
  else if (event.key === "PageDown") target = column.slice(y + 1, y + page + 1).findLast(Boolean);
  else if (event.key === "PageUp") target = column.slice(Math.max(0, y - page), y).find(Boolean);
  else if (event.key === "Enter" || event.key === " ") show(worstOf(cell.rows), cell.rows, true);
  else return;
  event.preventDefault();
  if (target) focusCell(target);
});

map.addEventListener("click", (event) => {
  const cell = event.target.closest("td.cell");
  if (cell) show(worstOf(cell.rows), cell.rows, true);
});

const worstOf = (of) => [...of].sort(worse)[0];

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.open) close();
});

// The panel: one tap opened

const panel = byId("panel");

function show(row, among, takeFocus) {
  map.querySelector("td.open")?.classList.remove("open");
  state.open = row;
  const cell = cellOfRow(row);
  cell?.classList.add("open");
  panel.hidden = false;
  panel.replaceChildren(...panelOf(row, among ?? [row]));
  panel.scrollTop = 0;
  if (location.hash !== `#row=${row.i}`) history.replaceState(null, "", `#row=${row.i}`);
  cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (takeFocus) panel.querySelector(".close").focus({ preventScroll: true });
}

function close() {
  const cell = cellOfRow(state.open);
  state.open = null;
  panel.hidden = true;
  panel.replaceChildren();
  history.replaceState(null, "", location.pathname + location.search);
  map.querySelector("td.open")?.classList.remove("open");
  if (cell) focusCell(cell);
}

function panelOf(row, among) {
  const order = chosen();
  const at = order.indexOf(row);
  const step = (to, text, label) => make("button", { type: "button", "aria-label": label, title: label, disabled: !order[to], onclick: () => show(order[to], null, false) }, text);
  const head = make("div", { class: "head" },
    make("h2", { id: "panel-title", class: "tap" }, ...broken(row.tap)),
    step(at - 1, "‹", "previous in capture order"),
    step(at < 0 ? -1 : at + 1, "›", "next in capture order"),
    make("button", { type: "button", class: "close", "aria-label": "close", title: "close (Esc)", onclick: close }, "×"));
  const where = make("p", { class: "where" },
    verdictMark(verdictOf(row)),
    make("span", {}, `step ${row.step}`),
    row.call ? make("span", {}, `call ${row.call}`) : "",
    row.group ? make("span", {}, row.group) : "",
    row === first ? make("strong", {}, "the first divergence") : "");
  return [head, where, amongOf(row, among), ...findingsOf(row), factsOf(row), ...ranksOf(row), ...detailOf(row)];
}

/** The other rows of the cell. */
function amongOf(row, among) {
  if (among.length < 2) return "";
  const options = [...among].sort((a, b) => a.i - b.i).map((of) => make("option", { value: of.i, selected: of === row }, describe(of)));
  return make("select", { class: "among", "aria-label": "rows of this cell", onchange: (event) => show(rows[Number(event.target.value)], among, false) }, ...options);
}

const FROM = { capture: "said at the tap", layouts: "said in the layouts file", inferred: "guessed from the shapes" };

function factsOf(row) {
  const detail = row.detail;
  const dtypes = detail ? [...new Set(detail.sides.map((side) => side.dtype))].join(" → ") : "";
  const test = row.test && row.test.name ? `${row.test.name}, ${short(row.test.severity)} × its limit` : "";
  const facts = [
    ["placement", row.placement && `${row.placement}${row.placement_from ? `, ${FROM[row.placement_from] ?? row.placement_from}` : ""}`, "wide"],
    ["decided by", test],
    ["ranks", row.ranks.length ? ranges(row.ranks) : ""],
    ["shape", detail && `[${detail.shape.join(", ")}]`],
    ["dtype", dtypes],
    ["numbers compared", row.n ? whole(row.n) : ""],
    ["padding left out", row.padded ? plural(row.padded, "slice") : ""],
    ["largest error, units", short(row.max_units)],
    ["largest row rms, units", short(row.row_units)],
    ["noise before, units", short(row.inherited_units)],
    ["largest error", short(row.max_abs)],
    ["largest error, ulp", row.max_ulp === null ? "" : short(row.max_ulp)],
    ["relative L2", short(row.rel_l2)],
    ["cosine", row.cosine === null ? "" : String(Number(row.cosine.toPrecision(8)))],
    ["slope", row.slope === null ? "" : String(Number(row.slope.toPrecision(6)))],
    ["NaN on one side", row.nan ? whole(row.nan) : ""],
    ["NaN on both sides", row.both_nan ? whole(row.both_nan) : ""],
  ];
  const items = facts.filter(([, value]) => value).map(([name, value, wide]) => make("div", { class: wide }, make("dt", {}, name), make("dd", {}, value)));
  return make("dl", { class: "facts" }, ...items);
}

function findingsOf(row) {
  return row.diagnoses.map((found) => {
    const copy = (event) => {
      const button = event.currentTarget;
      copyText(found.suggest, () => { button.textContent = "copied"; });
    };
    const suggest = found.suggest && make("p", { class: "suggest" },
      make("span", { class: "quiet" }, "placement"),
      make("code", {}, found.suggest),
      make("button", { type: "button", class: "copy", onclick: copy }, "copy"));
    return make("div", { class: found.kind === "seen" ? "finding seen" : "finding" }, make("p", {}, found.text), suggest);
  });
}

/** Pages from a file have no clipboard in some browsers. */
function copyText(text, done) {
  const byHand = () => {
    const field = make("textarea", { "aria-hidden": true });
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    if (copied) done();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
  else byHand();
}

function ranksOf(row) {
  if (row.by_rank.length < 2 || !row.by_rank.some((own) => own.max_units)) return [];
  const most = Math.max(...row.by_rank.map((own) => own.max_units ?? 0), 1);
  const width = (x) => (100 * Math.log1p(x)) / Math.log1p(most);
  const lines = row.by_rank.map((own) => {
    const error = errorOf(row, own.rank);
    const bar = make("i", { class: "bar", style: `width: ${error === CLASS_DIFFERS ? 100 : width(error ?? 0)}%; background: ${css(colour(error))}` });
    const name = make("th", { scope: "row" }, `rank ${own.rank}`, row.ranks.includes(own.rank) && isBad(row) ? " ✕" : "");
    return make("tr", {}, name, make("td", { class: "track" }, bar), make("td", {}, short(error)), make("td", {}, short(own.row_units)));
  });
  const head = ["rank", "", "largest, units", "row rms"].map((name) => make("th", { scope: "col" }, name));
  return [make("h3", {}, "Errors by rank"), make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines))];
}

function detailOf(row) {
  const detail = row.detail;
  if (!detail) {
    const why = row.n && data.left_out ? "Statistics, map and elements of this row were left out for lack of room; tpcapture report --tap has them." : "";
    return why ? [make("p", { class: "quiet", style: "margin-top: 1rem" }, why)] : [];
  }
  return [...mapOf(row, detail), ...worstElements(row, detail), ...histogramOf(detail), ...statisticsOf(detail)];
}

// The error map

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** The error that a letter stands for. */
function errorOfLetter(letter) {
  const level = LETTERS.indexOf(letter);
  if (level === 0) return 0;
  return level === 63 ? CLASS_DIFFERS : 2 ** ((level - 1) / 2 - 4);
}

/** Which dims the rows and the columns of a map are. */
function dimsOf(detail) {
  let columns = 1;
  let at = detail.shape.length;
  while (at > 0 && columns < detail.map.columns) columns *= detail.shape[--at];
  const name = (from, to) => (to - from < 1 ? "" : to - from === 1 ? `dim ${from}` : `dims ${from}–${to - 1}`);
  return { rows: name(0, at), columns: name(at, detail.shape.length) };
}

function mapOf(row, detail) {
  if (!detail.map || !detail.map.cells) return [];
  const { rows: of, columns, cells, shape: [down, across] } = detail.map;
  const hasUnits = row.max_units !== null;
  const errors = [...cells].map(errorOfLetter);
  const largest = Math.max(...errors.filter(Number.isFinite), 0);
  const canvas = make("canvas", { width: across, height: down, role: "img" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(across, down);
  errors.forEach((error, i) => {
    // Differences have no unit to be coloured by: the largest has the top of the scale.
    const [r, g, b] = colour(hasUnits || !Number.isFinite(error) ? error : (error / largest) * HIGHEST);
    image.data.set([r, g, b, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
  const span = (i, n, all) => {
    const [from, to] = [Math.ceil((i * all) / n), Math.ceil(((i + 1) * all) / n) - 1];
    return to > from ? `${from}–${to}` : `${from}`;
  };
  const text = (i) => {
    const error = errors[i];
    const said = error === CLASS_DIFFERS ? "NaN or inf on one side" : error === 0 ? "the same" : `about ${short(error)}${hasUnits ? " units" : ""}`;
    return `row ${span(Math.floor(i / across), down, of)}, column ${span(i % across, across, columns)}: ${said}`;
  };
  const peak = errors.indexOf(errors.reduce((a, b) => Math.max(a, b)));
  const rest = `largest in each part: ${text(peak)}`;
  canvas.setAttribute("aria-label", rest);
  const caption = make("figcaption", {}, rest);
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(across - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * across)));
    const y = Math.min(down - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * down)));
    caption.textContent = text(y * across + x);
  });
  canvas.addEventListener("mouseleave", () => { caption.textContent = rest; });
  const dims = dimsOf(detail);
  const axis = (name, what, n) => [make("span", {}, "0"), make("span", {}, dims[name] ? `${what}: ${dims[name]}` : what), make("span", {}, whole(n - 1))];
  // Bottom up, as it is turned round.
  const left = make("span", { class: "rows" }, ...axis("rows", "rows", of).reverse());
  const figure = make("figure", {}, make("div", { class: "errors" }, left, canvas, make("span", { class: "columns" }, ...axis("columns", "columns", columns))), caption);
  canvas.style.height = `${Math.min(260, Math.max(28, down * 13))}px`;
  return [make("h3", {}, hasUnits ? "Error map, rounding units" : "Error map, differences"), figure];
}

function worstElements(row, detail) {
  if (!detail.worst.length) return [];
  const head = ["index", "reference", "candidate", row.max_units === null ? "difference" : "units", "rank"].map((name) => make("th", { scope: "col" }, name));
  const lines = detail.worst.map((found) => {
    const cells = [`[${found.index.join(", ")}]`, found.reference, found.candidate, found.error === "inf" ? "–" : short(Number(found.error)), found.rank ?? ""];
    return make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
  });
  return [make("h3", {}, "Worst elements"), make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)))];
}

// Both sides

const sideNames = (detail) => (data.runs.length > 1 ? (detail.sides.length > 1 ? ["reference", "candidate"] : ["both sides"]) : detail.sides.length > 1 ? ["most ranks", "this one"] : ["run"]);

function histogramOf(detail) {
  const sides = detail.sides.filter((side) => side.finite);
  if (!sides.length || sides[0].histogram.length === 0) return [];
  const [width, height, base] = [600, 120, 122];
  const most = Math.max(...sides.flatMap((side) => side.histogram), 1);
  // Few numbers far out are what a fault looks like: roots show them beside many.
  const high = (n) => (n === 0 ? 0 : Math.max(1.5, height * Math.sqrt(n / most)));
  const bins = sides[0].histogram.length;
  const each = width / bins;
  const drawn = [];
  sides.forEach((side, k) => {
    if (k === 0) {
      side.histogram.forEach((n, i) => {
        if (n) drawn.push(make("rect", { class: "reference", x: i * each + 0.5, y: base - high(n), width: each - 1, height: high(n) }));
      });
    } else {
      const path = side.histogram.map((n, i) => `${i ? "L" : "M"}${i * each},${base - high(n)}H${(i + 1) * each}`).join("");
      drawn.push(make("path", { class: "candidate", d: path }));
    }
  });
  const low = sides.map((side) => side.finite[0]).reduce((a, b) => (Number(a) <= Number(b) ? a : b));
  const top = sides.map((side) => side.finite[1]).reduce((a, b) => (Number(a) >= Number(b) ? a : b));
  const zero = (0 - Number(low)) / (Number(top) - Number(low));
  const axis = [
    make("line", { x1: 0, x2: width, y1: base, y2: base, stroke: "currentColor", "stroke-opacity": 0.3 }),
    make("text", { x: 0, y: base + 16 }, low),
    make("text", { x: width, y: base + 16, "text-anchor": "end" }, top),
    zero > 0.15 && zero < 0.85 ? make("text", { x: zero * width, y: base + 16, "text-anchor": "middle" }, "0") : "",
  ];
  const names = sideNames(detail);
  const svg = make("svg", { viewBox: `0 0 ${width} ${base + 20}`, role: "img", "aria-label": `histogram of ${names.join(" and ")} from ${low} to ${top}` }, ...drawn, ...axis);
  const keys = sides.flatMap((_, k) => [make("i", { class: `key of-${["reference", "candidate"][k]}` }), names[k]]);
  return [make("h3", {}, "Values"), make("figure", {}, svg, make("figcaption", {}, ...keys, ` \u2003heights are roots of counts, up to ${whole(most)}`))];
}

function statisticsOf(detail) {
  const names = sideNames(detail);
  const line = (name, of) => {
    const cells = detail.sides.map(of);
    return cells.every((cell) => cell === undefined) ? null : make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell ?? "")));
  };
  const count = (i) => (side) => whole(side.counts[i]);
  const number = (i) => (side) => side.finite?.[i];
  const lines = [
    ...["min", "max", "mean", "rms", "largest magnitude"].map((name, i) => line(name, number(i))),
    ...["numbers", "NaN", "+inf", "−inf", "zero"].map((name, i) => line(name, count(i))),
  ];
  const head = ["", ...names].map((name) => make("th", { scope: "col" }, name));
  return [make("h3", {}, "Statistics"), make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines.filter(Boolean)))];
}

// Controls

function drawControls() {
  const counts = new Map();
  rows.forEach((row) => counts.set(verdictOf(row), (counts.get(verdictOf(row)) ?? 0) + 1));
  for (const verdict of ORDER.filter((of) => counts.has(of))) {
    const box = make("input", { type: "checkbox", value: verdict, checked: true, onchange: () => {
      if (box.checked) state.verdicts.add(verdict);
      else state.verdicts.delete(verdict);
      draw();
    } });
    const text = verdictMark(`${verdict} ${whole(counts.get(verdict))}`);
    text.dataset.verdict = verdict;
    byId("verdicts").append(make("label", {}, box, text));
  }
  const select = byId("step");
  if (steps.length < 2) byId("of-step").hidden = true;
  const worstOfStep = (step) => verdictOf(worstOf(rows.filter((row) => row.step === step)));
  for (const step of steps) select.append(make("option", { value: step }, `${step} ${MARKS[worstOfStep(step)]} ${worstOfStep(step)}`));
  select.append(make("option", { value: "all" }, "all, the worst"));
  select.value = state.step;
  select.addEventListener("change", () => { state.step = select.value; draw(); reveal(); });
  byId("tap").addEventListener("input", (event) => { state.tap = event.target.value; draw(); });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  if (!layered.size) state.view = "ranks";
  for (const radio of document.querySelectorAll('input[name="view"]')) {
    radio.checked = radio.value === state.view;
    radio.addEventListener("change", () => { state.view = radio.value; draw(); reveal(); });
  }
}

function drawNotes() {
  const notes = [];
  if (data.short) notes.push(make("li", {}, `Of ${plural(data.short, "row")} the error map is coarser and the list of elements shorter, to keep this page small. Rows beyond rounding come first.`));
  if (data.left_out) notes.push(make("li", {}, `Statistics, map and elements of ${plural(data.left_out, "row")} were left out, those of the best verdicts; tpcapture report --tap or --step has them.`));
  data.errors.forEach((error) => notes.push(make("li", { class: "error" }, `cannot be read: ${error.file}: ${error.reason}`)));
  byId("notes").replaceChildren(...notes);
}

/** Opens the row that the address names. */
function follow() {
  const row = rows[Number(location.hash.match(/^#row=(\d+)$/)?.[1])];
  if (!row) return;
  if (state.step !== "all" && state.step !== String(row.step)) {
    state.step = String(row.step);
    byId("step").value = state.step;
    draw();
  }
  show(row, null, false);
}

readColours();
drawLegend();
drawControls();
drawNotes();
byId("app").hidden = false;
draw();
reveal();
const link = byId("first");
if (link && first) link.href = `#row=${first.i}`;
link?.addEventListener("click", () => setTimeout(() => { if (state.open !== first) follow(); }));
window.addEventListener("hashchange", follow);
follow();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  drawLegend();
  draw();
  if (state.open) show(state.open, null, false);
});
