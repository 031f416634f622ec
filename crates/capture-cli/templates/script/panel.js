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
  return [head, where, amongOf(row, among), ...findingsOf(row), factsOf(row), ...ranksOf(row), ...detailOf(row), ...figuresOf(row), ...sidesOf(row)];
}

/** The other rows of the cell. */
function amongOf(row, among) {
  if (among.length < 2) return "";
  const options = [...among].sort((a, b) => a.i - b.i).map((of) => make("option", { value: of.i, selected: of === row }, describe(of)));
  return make("select", { class: "among", "aria-label": "rows of this cell", onchange: (event) => show(rows[Number(event.target.value)], among, false) }, ...options);
}

const FROM = { capture: "said at the tap", layouts: "said in the layouts file", inferred: "guessed from the shapes" };

/** Names and values as a list; what has no value is left out. */
function listOf(facts) {
  const items = facts.filter(([, value]) => value).map(([name, value, wide]) => make("div", { class: wide }, make("dt", {}, name), make("dd", {}, value)));
  return make("dl", { class: "facts" }, ...items);
}

/** What the verdict is of. */
function factsOf(row) {
  const detail = row.detail;
  const dtypes = detail ? [...new Set(detail.sides.map((side) => side.dtype))].join(" → ") : "";
  const from = row.placement_from ? `, ${FROM[row.placement_from] ?? row.placement_from}` : "";
  return listOf([
    ["placement", row.placement && row.placement + from, "wide"],
    ["decided by", row.test && `${row.test.name}, ${short(row.test.severity)} × its limit`],
    ["largest error, units", short(row.max_units)],
    ["ranks", ranges(row.ranks)],
    ["shape", detail && `[${detail.shape.join(", ")}]`],
    ["dtype", dtypes],
    ["padding left out", row.padded ? plural(row.padded, "slice") : ""],
  ]);
}

/** All its figures. */
function figuresOf(row) {
  const digits = (x, n) => (x === null ? "" : String(Number(x.toPrecision(n))));
  const figures = listOf([
    ["largest row rms, units", short(row.row_units)],
    ["noise before, units", short(row.inherited_units)],
    ["largest error", short(row.max_abs)],
    ["largest error, ulp", short(row.max_ulp)],
    ["relative L2", short(row.rel_l2)],
    ["cosine", digits(row.cosine, 8)],
    ["slope", digits(row.slope, 6)],
    ["numbers compared", row.n ? whole(row.n) : ""],
    ["NaN on one side", row.nan ? whole(row.nan) : ""],
    ["NaN on both sides", row.both_nan ? whole(row.both_nan) : ""],
  ]);
  return figures.children.length ? [make("h3", {}, "Figures"), figures] : [];
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
  const lines = row.by_rank.map((own) => {
    const error = errorOf(row, own.rank);
    const bar = make("i", { class: "bar", style: `width: ${error ? 100 * placeOnScale(error) : 0}%; background: ${css(colour(error))}` });
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
  return [...mapOf(row, detail), ...worstElements(row, detail)];
}

const sidesOf = (row) => (row.detail ? [...histogramOf(row.detail), ...statisticsOf(row.detail)] : []);
