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
  const ranks = row.ranks.length ? `, rank${row.ranks.length > 1 ? "s" : ""} ${ranges(row.ranks)}` : "";
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
