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
  if (!target) return;
  focusCell(target);
  // Who has a tap open looks through others.
  if (state.open) show(worstOf(target.rows), target.rows, false);
});

map.addEventListener("click", (event) => {
  const cell = event.target.closest("td.cell");
  if (!cell) return;
  focusCell(cell);
  const isOver = getComputedStyle(panel).position === "fixed";
  show(worstOf(cell.rows), cell.rows, isOver);
});

const worstOf = (of) => [...of].sort(worse)[0];

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.open) close();
});
