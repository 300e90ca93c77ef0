// What the heat map and the line view look like on paper.
import { TICKS, levelOf, weightAt } from "./colours.js";
import { isSpecial, readable } from "./dom.js";
import { heightOf, linksOf, middleOf, thicknessOf } from "./links.js";
import { line, rectangle, shortened, text, widthOf } from "./shapes.js";
import { said } from "./weights.js";

const MARGIN = 12;
const AIR = 8; // between a label and what it names
const CELL = 32;
const BETWEEN_CELLS = 1.5;
const LONGEST_LABEL = 150;
const PITCH = 26;
const REACH = 240; // of the lines, from one sentence to the other
const TILT = 50; // degrees
const GREY = "#63686f";
const RED = "#b3431f";
const BLUE = "#255f92";

const labelsOf = (axis) => axis.labels.map((label) => shortened(readable(label), LONGEST_LABEL));
const widestOf = (labels) => Math.max(0, ...labels.map((label) => widthOf(label)));
const tone = (label) => (isSpecial(label) ? { colour: GREY, size: 12.5 } : {});

export function heatMapPicture(map, matrix, palette, numbers) {
  const [rows, columns] = [labelsOf(map.rows), labelsOf(map.columns)];
  const radians = (TILT * Math.PI) / 180;
  const left = Math.ceil(MARGIN + widestOf(rows) + AIR);
  const top = Math.ceil(MARGIN + widestOf(columns) * Math.sin(radians) + 12 + AIR);
  const headAt = (column) => left + (column + 0.5) * CELL + 4;
  const headEnds = columns.map((label, column) => headAt(column) + widthOf(label) * Math.cos(radians) + 12);
  const bottom = top + rows.length * CELL;
  const scale = scaleShapes(left, bottom + 18, palette);
  return {
    width: Math.ceil(Math.max(left + columns.length * CELL, left + scale.width, ...headEnds) + MARGIN),
    height: Math.ceil(bottom + 18 + scale.height + MARGIN),
    shapes: [
      ...matrix.flatMap((weights, row) => weights.flatMap((weight, column) =>
        cellShapes(weight, left + column * CELL, top + row * CELL, palette, numbers))),
      ...rows.map((label, row) =>
        text(label, left - AIR, top + (row + 0.5) * CELL + 5, { anchor: "end", ...tone(label) })),
      ...columns.map((label, column) => text(label, headAt(column), top - AIR, { turn: -TILT, ...tone(label) })),
      ...scale.shapes,
    ],
  };
}

function cellShapes(weight, x, y, { colourOf, inkOn }, numbers) {
  const side = CELL - BETWEEN_CELLS;
  const written = (words, colour, size) =>
    text(words, x + side / 2, y + side / 2 + size / 3, { anchor: "middle", colour, size });
  if (Number.isNaN(weight)) return [written("?", RED, 15)];
  const cell = rectangle(x, y, side, side, colourOf(weight));
  return numbers ? [cell, written(said(weight, 2), inkOn(weight), 10.5)] : [cell];
}

function scaleShapes(left, top, { colourOf }) {
  const [parts, width] = [50, 200];
  const breadth = width / parts;
  const bars = Array.from({ length: parts }, (_, part) =>
    rectangle(left + part * breadth, top, breadth + 0.5, 8, colourOf(weightAt((part + 0.5) / parts))));
  const ticks = TICKS.map((weight, i) => text(String(weight), left + levelOf(weight) * width, top + 22,
    { size: 11, colour: GREY, anchor: i === 0 ? "start" : i === TICKS.length - 1 ? "end" : "middle" }));
  return { width, height: 24, shapes: [...bars, ...ticks] };
}

export function linesPicture(map, matrix) {
  const [rows, columns] = [labelsOf(map.rows), labelsOf(map.columns)];
  const height = heightOf(map, PITCH);
  const left = Math.ceil(MARGIN + widestOf(columns) + AIR);
  const right = left + REACH;
  const middle = (index, labels) => MARGIN + middleOf(index, labels.length, height);
  return {
    width: Math.ceil(right + AIR + widestOf(rows) + MARGIN),
    height: Math.ceil(height + 2 * MARGIN),
    shapes: [
      ...linksOf(matrix).map(({ row, column, weight }) => line(left, middle(column, columns), right, middle(row, rows),
        ...(Number.isNaN(weight) ? [1, RED, 1] : [thicknessOf(weight), BLUE, levelOf(weight)]))),
      ...columns.map((label, column) =>
        text(label, left - AIR, middle(column, columns) + 5, { anchor: "end", ...tone(label) })),
      ...rows.map((label, row) => text(label, right + AIR, middle(row, rows) + 5, tone(label))),
    ],
  };
}
