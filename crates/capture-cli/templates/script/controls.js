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
