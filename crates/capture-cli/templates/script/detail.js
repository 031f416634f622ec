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
  const axis = (name, what, n) => n < 2 ? [] : [make("span", {}, "0"), make("span", {}, dims[name] ? `${what}: ${dims[name]}` : what), make("span", {}, whole(n - 1))];
  // Bottom up, as it is turned round.
  const left = make("span", { class: "rows" }, ...axis("rows", "rows", of).reverse());
  const figure = make("figure", {}, make("div", { class: "errors" }, left, canvas, make("span", { class: "columns" }, ...axis("columns", "columns", columns))), caption);
  canvas.style.height = `${down === 1 ? 28 : Math.min(260, Math.max(120, down * 13))}px`;
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
