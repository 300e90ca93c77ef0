// The line view: keys on the left (the source, in cross-attention), queries on the right, and a line for each weight.
import { clamp, enableArrowKeys } from "./arrow_keys.js";
import { colorByWeight, intensityOf } from "./colors.js";
import { isSpecial, make, makeSvg, readable } from "./dom.js";
import { curvePath, heightOf, linesOf, middleOf, thicknessOf } from "./line_geometry.js";
import { KINDS } from "./selection.js";
import { weightTable } from "./weight_table.js";

const WORD_HEIGHT = 30; // pixels
const DRAWING_WIDTH = 100; // the width of the SVG's viewBox; the style sheet stretches it

export function lineView(map, matrix, palette) {
  const height = heightOf(map, WORD_HEIGHT);
  const lists = [wordList(map, "columns", "column"), wordList(map, "rows", "row")];
  const [columns, rows] = lists.map((list) => [...list.children]);
  const paths = linesOf(matrix).map((line) => linePath(line, columns.length, rows.length, height));
  const drawing = makeSvg("svg",
    { viewBox: `0 0 ${DRAWING_WIDTH} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...paths);
  drawing.style.height = `${height}px`;
  const titles = ["columns", "rows"].map((axis) =>
    make("span", { className: `caption of-${axis}`, ariaHidden: "true" }, KINDS[map.kind][axis]));
  const body = make("div", { className: "body" }, ...titles, lists[0], drawing, lists[1]);
  (columns[0] ?? rows[0])?.setAttribute("tabindex", "0");
  enableArrowKeys(body, (word, down, right) => neighborOf(word, [columns, rows], down, right));
  const element = make("div", { className: "line-view" }, body,
    make("div", { className: "visually-hidden" }, weightTable(map, matrix).table));

  // Highlight a word and its lines, and color the words of the other side by their weights.
  function highlight(row, column) {
    const rowWeights = matrix[row];
    const columnWeights = rowWeights || column === undefined ? undefined : matrix.map((weights) => weights[column]);
    highlightWords(columns, column, rowWeights, palette);
    highlightWords(rows, row, columnWeights, palette);
    drawing.classList.toggle("pointed", row !== undefined || column !== undefined);
    for (const { dataset, classList } of paths) {
      classList.toggle("on", matches(dataset.row, row) && matches(dataset.column, column));
    }
  }

  return { element, highlight, fit() {} };
}

const matches = (index, pointed) => pointed === undefined || Number(index) === pointed;

function highlightWords(words, pointed, weights, palette) {
  colorByWeight(words.map((word) => word.firstChild), weights, palette);
  words.forEach((word, index) => {
    word.classList.toggle("on", index === pointed);
    word.ariaSelected = String(index === pointed);
  });
}

function wordList(map, axis, indexName) {
  const { labels } = map[axis];
  const words = labels.map((label, index) => {
    const data = { [indexName]: index };
    const properties = { role: "option", ariaSelected: "false", tabIndex: -1, title: label, data };
    const word = make("li", properties, make("span", { dir: "auto" }, readable(label)));
    word.classList.toggle("special", isSpecial(label));
    return word;
  });
  return make("ul", { className: axis, role: "listbox", ariaLabel: KINDS[map.kind][axis], hidden: !labels.length },
    ...words);
}

function linePath({ row, column, weight }, columnCount, rowCount, height) {
  const path = makeSvg("path",
    { d: curvePath(0, middleOf(column, columnCount, height), DRAWING_WIDTH, middleOf(row, rowCount, height)) });
  Object.assign(path.dataset, { row, column });
  if (Number.isNaN(weight)) path.classList.add("nan");
  else Object.assign(path.style, { strokeWidth: `${thicknessOf(weight)}px`, strokeOpacity: intensityOf(weight) });
  return path;
}

// Up and down move within a sentence; left and right move to the word at the same height in the other sentence.
function neighborOf({ dataset }, sides, down, right) {
  const from = dataset.column === undefined ? 1 : 0;
  const index = Number(dataset.column ?? dataset.row);
  if (Math.abs(right) !== 1) return sides[from][clamp(index + (down || right), sides[from].length)];
  const to = sides[clamp(from + right, 2)];
  if (to === sides[from] || !to.length) return sides[from][index];
  return to[clamp(Math.floor(middleOf(index, sides[from].length, to.length)), to.length)];
}
