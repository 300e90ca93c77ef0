// The heat map and the line view as images for export.
import { TICKS, intensityOf, weightAt } from "./colors.js";
import { isSpecial, readable } from "./dom.js";
import { line, rectangle, shortened, text, textWidth } from "./image_formats.js";
import { heightOf, linesOf, middleOf, thicknessOf } from "./line_geometry.js";
import { formatWeight } from "./weights.js";

const MARGIN = 12; // all lengths are in units of the SVG
const LABEL_GAP = 8;
const CELL = 32;
const CELL_SPACING = 1.5;
const MAX_LABEL_WIDTH = 150;
const LINE_ROW_HEIGHT = 26;
const LINE_WIDTH = 240; // the distance between the two sentences
const LABEL_ANGLE = 50; // degrees
const GRAY = "#63686f";
const RED = "#b3431f";
const BLUE = "#255f92";

const labelsOf = (axis) => axis.labels.map((label) => shortened(readable(label), MAX_LABEL_WIDTH));
const widestOf = (labels) => Math.max(0, ...labels.map((label) => textWidth(label)));
const labelStyle = (label) => (isSpecial(label) ? { color: GRAY, size: 12.5 } : {});

export function heatMapImage(map, matrix, palette, numbers) {
  const [rows, columns] = [labelsOf(map.rows), labelsOf(map.columns)];
  const radians = (LABEL_ANGLE * Math.PI) / 180;
  const left = Math.ceil(MARGIN + widestOf(rows) + LABEL_GAP);
  const top = Math.ceil(MARGIN + widestOf(columns) * Math.sin(radians) + 12 + LABEL_GAP);
  const labelX = (column) => left + (column + 0.5) * CELL + 4;
  const labelEnds = columns.map((label, column) => labelX(column) + textWidth(label) * Math.cos(radians) + 12);
  const bottom = top + rows.length * CELL;
  const scale = colorScale(left, bottom + 18, palette);
  return {
    width: Math.ceil(Math.max(left + columns.length * CELL, left + scale.width, ...labelEnds) + MARGIN),
    height: Math.ceil(bottom + 18 + scale.height + MARGIN),
    shapes: [
      ...matrix.flatMap((weights, row) => weights.flatMap((weight, column) =>
        cellShapes(weight, left + column * CELL, top + row * CELL, palette, numbers))),
      ...rows.map((label, row) =>
        text(label, left - LABEL_GAP, top + (row + 0.5) * CELL + 5, { anchor: "end", ...labelStyle(label) })),
      ...columns.map((label, column) =>
        text(label, labelX(column), top - LABEL_GAP, { angle: -LABEL_ANGLE, ...labelStyle(label) })),
      ...scale.shapes,
    ],
  };
}

function cellShapes(weight, x, y, { colorOf, textColorOn }, numbers) {
  const side = CELL - CELL_SPACING;
  const cellText = (content, color, size) =>
    text(content, x + side / 2, y + side / 2 + size / 3, { anchor: "middle", color, size });
  if (Number.isNaN(weight)) return [cellText("?", RED, 15)];
  const cell = rectangle(x, y, side, side, colorOf(weight));
  return numbers ? [cell, cellText(formatWeight(weight, 2), textColorOn(weight), 10.5)] : [cell];
}

function colorScale(left, top, { colorOf }) {
  const [steps, width] = [50, 200];
  const stepWidth = width / steps;
  const bars = Array.from({ length: steps }, (_, step) =>
    rectangle(left + step * stepWidth, top, stepWidth + 0.5, 8, colorOf(weightAt((step + 0.5) / steps))));
  const ticks = TICKS.map((weight, i) => text(String(weight), left + intensityOf(weight) * width, top + 22,
    { size: 11, color: GRAY, anchor: i === 0 ? "start" : i === TICKS.length - 1 ? "end" : "middle" }));
  return { width, height: 24, shapes: [...bars, ...ticks] };
}

export function lineViewImage(map, matrix) {
  const [rows, columns] = [labelsOf(map.rows), labelsOf(map.columns)];
  const height = heightOf(map, LINE_ROW_HEIGHT);
  const left = Math.ceil(MARGIN + widestOf(columns) + LABEL_GAP);
  const right = left + LINE_WIDTH;
  const middle = (index, labels) => MARGIN + middleOf(index, labels.length, height);
  return {
    width: Math.ceil(right + LABEL_GAP + widestOf(rows) + MARGIN),
    height: Math.ceil(height + 2 * MARGIN),
    shapes: [
      ...linesOf(matrix).map(({ row, column, weight }) => line(left, middle(column, columns), right, middle(row, rows),
        ...(Number.isNaN(weight) ? [1, RED, 1] : [thicknessOf(weight), BLUE, intensityOf(weight)]))),
      ...columns.map((label, column) =>
        text(label, left - LABEL_GAP, middle(column, columns) + 5, { anchor: "end", ...labelStyle(label) })),
      ...rows.map((label, row) => text(label, right + LABEL_GAP, middle(row, rows) + 5, labelStyle(label))),
    ],
  };
}
