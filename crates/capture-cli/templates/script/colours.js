// Colours: the same error has the same colour on every page.

const LOWEST = 0.1;
const HIGHEST = 1e7;
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
  return scale[Math.round(255 * placeOnScale(error))];
}
const placeOnScale = (error) => Math.min(1, Math.max(0, Math.log(error / LOWEST) / Math.log(HIGHEST / LOWEST)));
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
/** Black or white, whichever is read on a colour. */
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff");

function drawLegend() {
  const ramp = make("span", { class: "ramp", "aria-hidden": true });
  const stops = scale.filter((_, i) => i % 15 === 0).map(css);
  ramp.append(make("i", { style: `background: linear-gradient(to right, ${stops})` }));
  const decades = Math.log10(HIGHEST / LOWEST);
  for (let i = 0; i <= decades; i++) {
    const power = Math.round(Math.log10(LOWEST)) + i;
    const label = power > 3 ? `10${"⁰¹²³⁴⁵⁶⁷"[power]}` : String(Number((10 ** power).toPrecision(1)));
    ramp.append(make("span", { style: `left: ${(100 * i) / decades}%` }, label));
  }
  const swatch = (rgb, text) => make("span", {}, make("i", { class: "swatch", style: `background: ${css(rgb)}` }), text);
  byId("legend").replaceChildren(
    make("span", { class: "scale" }, "error in rounding units, by rank from left to right ", ramp),
    swatch(special.same, "the same"),
    swatch(special.class, "NaN or inf on one side"),
    swatch(special.plain, "differs, has no units"),
  );
}
