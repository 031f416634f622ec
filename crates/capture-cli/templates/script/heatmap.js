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
