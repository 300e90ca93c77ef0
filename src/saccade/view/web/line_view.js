// The line view: columns on the left (the source, in cross-attention), rows on the right, and a line for each weight.
import { KINDS } from "./choice.js";
import { levelOf, tint } from "./colours.js";
import { isSpecial, make, makeSvg, readable } from "./dom.js";
import { curve, heightOf, linksOf, middleOf, thicknessOf } from "./links.js";
import { weightTable } from "./table.js";
import { clamp, walkable } from "./walking.js";

const STEP = 30; // pixels a word
const BREADTH = 100; // of the drawing between the words, in units of its own: the style sheet stretches it

export function lineView(map, matrix, palette) {
  const height = heightOf(map, STEP);
  const sides = [sideOf(map, "columns", "column"), sideOf(map, "rows", "row")];
  const [columns, rows] = sides.map((side) => [...side.children]);
  const links = linksOf(matrix).map((link) => drawn(link, columns.length, rows.length, height));
  const drawing = makeSvg("svg",
    { viewBox: `0 0 ${BREADTH} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...links);
  drawing.style.height = `${height}px`;
  const titles = ["columns", "rows"].map((axis) =>
    make("span", { className: `caption of-${axis}`, ariaHidden: "true" }, KINDS[map.kind][axis]));
  const places = make("div", { className: "places" }, ...titles, sides[0], drawing, sides[1]);
  (columns[0] ?? rows[0])?.setAttribute("tabindex", "0");
  walkable(places, (place, down, right) => neighbourOf(place, [columns, rows], down, right));
  const element = make("div", { className: "line-view" }, places,
    make("div", { className: "only-read" }, weightTable(map, matrix).table));

  function shine(row, column) {
    const across = matrix[row];
    const upwards = across || column === undefined ? undefined : matrix.map((weights) => weights[column]);
    shineOn(columns, column, across, palette);
    shineOn(rows, row, upwards, palette);
    drawing.classList.toggle("pointed", row !== undefined || column !== undefined);
    for (const { dataset, classList } of links) {
      classList.toggle("on", isMeant(dataset.row, row) && isMeant(dataset.column, column));
    }
  }

  return { element, shine, fit() {} };
}

const isMeant = (index, pointed) => pointed === undefined || Number(index) === pointed;

function shineOn(places, pointed, weights, palette) {
  tint(places.map((place) => place.firstChild), weights, palette);
  places.forEach((place, index) => {
    place.classList.toggle("on", index === pointed);
    place.ariaSelected = String(index === pointed);
  });
}

function sideOf(map, axis, side) {
  const { labels } = map[axis];
  const places = labels.map((label, index) => {
    const settings = { role: "option", ariaSelected: "false", tabIndex: -1, title: label, data: { [side]: index } };
    const place = make("li", settings, make("span", { dir: "auto" }, readable(label)));
    place.classList.toggle("special", isSpecial(label));
    return place;
  });
  return make("ul", { className: axis, role: "listbox", ariaLabel: KINDS[map.kind][axis], hidden: !labels.length },
    ...places);
}

function drawn({ row, column, weight }, columnCount, rowCount, height) {
  const path = makeSvg("path",
    { d: curve(0, middleOf(column, columnCount, height), BREADTH, middleOf(row, rowCount, height)) });
  Object.assign(path.dataset, { row, column });
  if (Number.isNaN(weight)) path.classList.add("void");
  else Object.assign(path.style, { strokeWidth: `${thicknessOf(weight)}px`, strokeOpacity: levelOf(weight) });
  return path;
}

// Up and down within a sentence, across to the word at the same height of the other one.
function neighbourOf({ dataset }, sides, down, right) {
  const from = dataset.column === undefined ? 1 : 0;
  const index = Number(dataset.column ?? dataset.row);
  if (Math.abs(right) !== 1) return sides[from][clamp(index + (down || right), sides[from].length)];
  const to = sides[clamp(from + right, 2)];
  if (to === sides[from] || !to.length) return sides[from][index];
  return to[clamp(Math.floor(middleOf(index, sides[from].length, to.length)), to.length)];
}
