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
  if (size >= 1e5 || size < 1e-3) return Number(x.toPrecision(2)).toExponential().replace("e+", "e");
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
