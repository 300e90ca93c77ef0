"use strict";
// Everything shown is built from the JSON block "data". Words of the data reach the page as text nodes only.

const KINDS = {
  cross: { title: "Cross", rows: "Translation", columns: "Source" },
  encoder: { title: "Encoder", rows: "Source, looking", columns: "Source, looked at" },
  decoder: { title: "Decoder", rows: "Translation, looking", columns: "Translation, looked at" },
};
const LEVELS = { words: "Words", pieces: "Pieces" };
const JOINS = {
  mean: (values) => values.reduce((sum, value) => sum + value, 0) / values.length,
  max: (values) => Math.max(...values),
};
const HINT = "Point at a cell or a word, or walk through the map with the arrow keys.";
const TICKS = [0, 0.05, 0.2, 0.5, 1];
const BEND = 0.7;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0] };

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const state = { sentence: 0, level: "words", map: "", head: "mean", numbers: false };
const drawn = { matrix: [], cells: [], rowHeads: [], columnHeads: [], rowWords: [], columnWords: [] };

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// ---- What is chosen ----
const sentence = () => data.sentences[state.sentence];
const mapsNow = () => sentence().levels[state.level];
const mapNow = () => mapsNow().find((map) => map.name === state.map);
const peers = (kind) => mapsNow().filter((map) => map.kind === kind);

// Whatever the address bar or an earlier sentence asked for, end with a choice that exists.
function settle() {
  if (!data.sentences[state.sentence]) state.sentence = 0;
  const levels = Object.keys(LEVELS).filter((level) => sentence().levels[level]);
  if (!levels.includes(state.level)) state.level = levels[0];
  const kind = Object.keys(KINDS).find((each) => peers(each).length);
  if (!mapNow()) state.map = peers(kind).at(-1)?.name ?? "";
  const heads = mapNow()?.weights.length ?? 0;
  if (heads === 1) state.head = "0";
  else if (!Object.hasOwn(JOINS, state.head) && !mapNow()?.weights[state.head]?.map) state.head = "mean";
}

// The layer's number as in the model's own names, or the whole name where that would be ambiguous.
function layerTitles(maps) {
  const numbers = maps.map((map) => map.name.match(/layers\.(\d+)/)?.[1]);
  return new Set(numbers.filter(Boolean)).size === maps.length ? numbers : maps.map((map) => map.name);
}

function readHash() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const key of ["level", "map", "head"]) if (asked.has(key)) state[key] = asked.get(key);
  state.sentence = Number(asked.get("sentence") ?? 0);
  state.numbers = asked.get("numbers") === "true";
}

// ---- Weights and colours ----
const weightOf = (whole) => (whole === null ? NaN : whole / data.scale);

function matrixOf(map, head) {
  const join = JOINS[head];
  if (!join) return map.weights[head].map((row) => row.map(weightOf));
  return map.rows.labels.map((_, row) => map.columns.labels.map((_, column) =>
    join(map.weights.map((matrix) => weightOf(matrix[row][column])))));
}

// One scale from 0 to 1 on every map, so that maps may be compared; bent, so that small weights are seen.
const levelOf = (weight) => Math.min(1, Math.max(0, weight)) ** BEND;
const isStrong = (weight) => levelOf(weight) > turn;

let ramp = [];
let turn = 0.5; // the level from which text needs the other colour
function readColours() {
  const style = getComputedStyle(document.documentElement);
  ramp = style.getPropertyValue("--ramp").trim().split(/\s+/)
    .map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  turn = Number(style.getPropertyValue("--turn"));
}

function mix(level) {
  const position = level * (ramp.length - 1);
  const below = Math.min(Math.floor(position), ramp.length - 2);
  return ramp[below].map((from, i) => Math.round(from + (ramp[below + 1][i] - from) * (position - below)));
}

const colourOf = (weight) => (Number.isNaN(weight) ? "" : `rgb(${mix(levelOf(weight)).join(" ")})`);

function paint(canvas, matrix) {
  const [height, width] = [matrix.length, matrix[0]?.length ?? 0];
  if (!height || !width) return;
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  matrix.flat().forEach((weight, i) => image.data.set([...mix(levelOf(weight || 0)), 255], i * 4));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// ---- Controls ----
// Radio buttons bring the arrow keys along. They are rebuilt only when they change, so focus stays.
function offer(name, options, chosen) {
  const group = byId(name);
  if (group.dataset.options !== JSON.stringify(options)) {
    group.dataset.options = JSON.stringify(options);
    group.querySelectorAll("label").forEach((label) => label.remove());
    group.append(...options.map(([value, title]) =>
      make("label", {}, make("input", { type: "radio", name, value }), title)));
  }
  for (const input of group.querySelectorAll("input")) input.checked = input.value === chosen;
  group.hidden = options.length < 2;
}

function drawControls(map) {
  const kinds = Object.keys(KINDS).filter((kind) => peers(kind).length);
  offer("kind", kinds.map((kind) => [kind, KINDS[kind].title]), map.kind);
  const titles = layerTitles(peers(map.kind));
  offer("layer", peers(map.kind).map((peer, i) => [peer.name, titles[i]]), map.name);
  const heads = map.weights.map((_, head) => [String(head), String(head)]);
  offer("head", heads.length > 1 ? [["mean", "Average"], ["max", "Maximum"], ...heads] : heads, state.head);
  const levels = Object.keys(LEVELS).filter((level) => sentence().levels[level]);
  offer("level", levels.map((level) => [level, LEVELS[level]]), state.level);
  byId("numbers").checked = state.numbers;
  byId("sentence").value = String(state.sentence);
}

function choose(name, value) {
  const layer = peers(mapNow().kind).indexOf(mapNow());
  if (name === "kind") state.map = (peers(value)[layer] ?? peers(value).at(-1)).name;
  else state[name === "layer" ? "map" : name] = value;
  draw();
}

// ---- Sentences ----
const shown = (label) => (label.trim() === "" ? "␣" : label);
const isSpecial = (label) => /^<[^<>\s]+>$/.test(label);

function pieceOf(label, side, index) {
  const piece = make("span", { className: "piece" }, shown(label));
  piece.dataset[side] = index;
  piece.classList.toggle("special", isSpecial(label));
  if (isSpecial(label)) piece.dir = "ltr"; // or a leading "<s>" would turn a right-to-left sentence round
  return piece;
}

// Pieces of one word stand together, so that the line reads like the sentence it is.
function drawLine(line, axis, side) {
  const pieces = axis.labels.map((label, index) => pieceOf(label, side, index));
  const words = [];
  pieces.forEach((piece, index) => {
    if (axis.words[index] !== axis.words[index - 1]) words.push(make("span", { className: "word" }));
    words.at(-1).append(piece);
  });
  line.classList.toggle("long", pieces.length > 40);
  line.replaceChildren(...words.flatMap((word) => [word, " "]));
  return pieces;
}

// ---- The heat map: a real table, whose numbers are there for a screen reader even when not painted ----
function headCell(label, side, index) {
  const cell = make("th", { scope: side === "row" ? "row" : "col", title: label });
  cell.append(make("span", { dir: "auto" }, shown(label)));
  cell.classList.toggle("special", isSpecial(label));
  cell.dataset[side] = index;
  return cell;
}

function weightCell(weight, row, column) {
  const cell = make("td", { tabIndex: row + column ? -1 : 0 }, said(weight, 2));
  cell.setAttribute("role", "gridcell");
  Object.assign(cell.dataset, { row, column });
  cell.style.backgroundColor = colourOf(weight);
  cell.classList.toggle("strong", isStrong(weight));
  cell.classList.toggle("void", Number.isNaN(weight));
  return cell;
}

function drawTable(map) {
  const table = byId("map");
  drawn.cells = drawn.matrix.map((weights, row) => weights.map((weight, column) => weightCell(weight, row, column)));
  drawn.columnHeads = map.columns.labels.map((label, index) => headCell(label, "column", index));
  drawn.rowHeads = map.rows.labels.map((label, index) => headCell(label, "row", index));
  const lines = drawn.cells.map((cells, row) => make("tr", {}, drawn.rowHeads[row], ...cells));
  const head = make("tr", {}, make("td"), ...drawn.columnHeads);
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
  table.setAttribute("aria-label", `${map.name}, rows look at columns`);
  table.classList.toggle("numbers", state.numbers);
  fit();
}

// Slanted heads need room upwards and to the right; cells share what is left of the screen, within reason.
function fit() {
  const widest = (heads) => Math.max(0, ...heads.map((cell) => cell.firstChild.offsetWidth));
  const [rise, lean] = [0.77, 0.64].map((part) => widest(drawn.columnHeads) * part); // sine and cosine of 50°
  const top = byId("scroll").getBoundingClientRect().top + scrollY + rise + 60;
  const width = (byId("scroll").clientWidth - widest(drawn.rowHeads) - lean - 24) / drawn.columnHeads.length;
  const height = (innerHeight - top) / drawn.rowHeads.length;
  const cell = Math.max(state.numbers ? 34 : 20, Math.min(width - 2.1, Math.max(height - 2.1, 26), 52));
  const sizes = { rise: rise + 22, lean, cell };
  for (const name in sizes) byId("map").style.setProperty(`--${name}`, `${sizes[name]}px`);
}

// ---- Pointing at things ----
function tint(pieces, weights) {
  pieces.forEach((piece, index) => {
    piece.style.backgroundColor = weights ? colourOf(weights[index]) : "";
    piece.classList.toggle("strong", Boolean(weights) && isStrong(weights[index]));
  });
}

// Either index may be missing: a row alone shows where its word looks, a column alone who looks at its word.
function point(row, column) {
  const across = drawn.matrix[row];
  const down = across || column === undefined ? undefined : drawn.matrix.map((weights) => weights[column]);
  tint(drawn.columnWords, across);
  tint(drawn.rowWords, down);
  document.querySelectorAll(".on").forEach((element) => element.classList.remove("on"));
  const lit = [drawn.rowHeads[row], drawn.rowWords[row], drawn.columnHeads[column], drawn.columnWords[column],
    drawn.cells[row]?.[column]];
  lit.forEach((element) => element?.classList.add("on"));
  byId("readout").classList.toggle("idle", !across && !down);
  byId("readout").replaceChildren(...sayPointed(mapNow(), row, column, across ?? down));
}

const bold = (label) => make("b", {}, make("bdi", {}, shown(label)));
const said = (weight, places) => (Number.isNaN(weight) ? "not a number" : weight.toFixed(places));
const figure = (weight) => make("span", { className: "value" }, said(weight, 3));

function sayPointed(map, row, column, weights) {
  if (!weights) return [HINT];
  const [rows, columns] = [map.rows.labels, map.columns.labels];
  if (row !== undefined && column !== undefined) {
    return [bold(rows[row]), " looks at ", bold(columns[column]), " ", figure(weights[column])];
  }
  const [subject, verb, others] = row !== undefined
    ? [rows[row], " looks most at ", columns] : [columns[column], " is looked at most by ", rows];
  const best = [...weights.keys()].sort((one, other) => weights[other] - weights[one]).slice(0, 3);
  return [bold(subject), verb, ...best.flatMap((i) => [bold(others[i]), " ", figure(weights[i]), ", "]).slice(0, -1)];
}

// The gaps between cells and words point at nothing new, so the readout does not flicker.
function pointAt(element) {
  const pointed = element.closest("[data-row], [data-column]");
  if (pointed) point(...[pointed.dataset.row, pointed.dataset.column].map((index) => index && Number(index)));
}

// When the mouse goes away, what the keyboard points at is shown again.
function rest() {
  point();
  if (byId("map").contains(document.activeElement)) pointAt(document.activeElement);
}

function walk(event) {
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const clamp = (index, count) => Math.min(count - 1, Math.max(0, index));
  const row = clamp(Number(event.target.dataset.row) + step[0], drawn.cells.length);
  drawn.cells[row][clamp(Number(event.target.dataset.column) + step[1], drawn.cells[row].length)].focus();
}

// One cell at a time is reached by the tab key: the last one visited.
function visit(event) {
  byId("map").querySelector("td[tabindex='0']").tabIndex = -1;
  event.target.tabIndex = 0;
  pointAt(event.target);
}

// ---- All heads at once ----
function thumbnail(map, title, head) {
  const canvas = make("canvas");
  paint(canvas, matrixOf(map, head));
  const button = make("button", { type: "button", title: `layer ${title}, head ${head}` }, canvas);
  button.setAttribute("aria-label", button.title);
  button.setAttribute("aria-pressed", String(map.name === state.map && String(head) === state.head));
  button.classList.toggle("in-layer", map.name === state.map);
  button.addEventListener("click", () => {
    Object.assign(state, { map: map.name, head: String(head) });
    draw();
    byId("multiples").querySelector("[aria-pressed='true']").focus();
  });
  return button;
}

function drawMultiples(map) {
  const maps = peers(map.kind);
  const titles = layerTitles(maps);
  const heads = [...Array(Math.max(...maps.map((peer) => peer.weights.length))).keys()];
  const caption = (text, kind) => make("span", { className: `caption ${kind}` }, text);
  const rows = maps.flatMap((peer, i) => [caption(titles[i], "row-name"),
    ...heads.map((head) => (peer.weights[head] ? thumbnail(peer, titles[i], head) : make("span")))]);
  const grid = byId("multiples");
  grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, minmax(2.25rem, 7rem))`;
  grid.replaceChildren(make("span"), ...heads.map((head) => caption(String(head), "")), ...rows);
  byId("small-title").textContent = `${KINDS[map.kind].title}: layers down, heads across`;
  byId("small").hidden = maps.length * heads.length < 2;
}

// ---- Drawing it all ----
function draw() {
  if (data.sentences.length) settle();
  const map = data.sentences.length ? mapNow() : undefined;
  byId("view").hidden = !map;
  byId("nothing").hidden = Boolean(map);
  if (!map) return;
  drawn.matrix = matrixOf(map, state.head);
  drawControls(map);
  byId("columns-name").textContent = KINDS[map.kind].columns;
  byId("rows-name").textContent = KINDS[map.kind].rows;
  drawn.columnWords = drawLine(byId("columns-line"), map.columns, "column");
  drawn.rowWords = drawLine(byId("rows-line"), map.rows, "row");
  drawMultiples(map);
  drawTable(map);
  byId("name").textContent = map.name;
  point();
  // A page shown inside a notebook has no address of its own; everything else still works.
  try { history.replaceState(null, "", `#${new URLSearchParams(state)}`); } catch {}
}

function redraw() {
  readColours();
  paint(byId("ramp"), [Array.from({ length: 200 }, (_, i) => (i / 199) ** (1 / BEND))]);
  byId("ticks").replaceChildren(...TICKS.map((weight) => make("span", {}, String(weight))));
  TICKS.forEach((weight, i) => { byId("ticks").children[i].style.left = `${levelOf(weight) * 100}%`; });
  draw();
}

byId("sentence").append(...data.sentences.map(({ source, target }, index) =>
  make("option", { value: String(index) }, `${index + 1}. ${source} → ${target}`)));
byId("sentence-picker").hidden = data.sentences.length < 2;
byId("sentence").addEventListener("change", (event) => choose("sentence", Number(event.target.value)));
byId("numbers").addEventListener("change", (event) => choose("numbers", event.target.checked));
document.querySelectorAll("fieldset").forEach((group) =>
  group.addEventListener("change", (event) => choose(event.target.name, event.target.value)));
for (const area of [byId("map"), byId("columns-line"), byId("rows-line")]) {
  area.addEventListener("pointerover", (event) => pointAt(event.target));
  area.addEventListener("pointerleave", rest);
}
byId("map").addEventListener("focusin", visit);
byId("map").addEventListener("focusout", () => point());
byId("map").addEventListener("keydown", walk);
window.addEventListener("resize", fit);
window.addEventListener("hashchange", () => { readHash(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
readHash();
redraw();
