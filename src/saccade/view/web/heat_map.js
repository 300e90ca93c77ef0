// The heat map: the table of weights with colored cells. Screen readers read the numbers even when they are hidden.
import { clamp, enableArrowKeys } from "./arrow_keys.js";
import { make } from "./dom.js";
import { weightTable } from "./weight_table.js";

const HEADER_ANGLE = (50 * Math.PI) / 180; // of the column headers, as in the style sheet
const CELL_GAP = 2.1; // all sizes are in pixels
const MIN_CELL = 20;
const MIN_CELL_WITH_NUMBERS = 34;
const MAX_CELL = 52;

export function heatMap(map, matrix, palette, numbers) {
  const { table, cells, columnHeaders, rowHeaders } = weightTable(map, matrix);
  table.role = "grid";
  table.classList.toggle("numbers", numbers);
  cells.flat().forEach((cell) => styleCell(cell, matrix[cell.dataset.row][cell.dataset.column], palette));
  enableArrowKeys(table, ({ dataset }, down, right) => {
    const row = cells[clamp(Number(dataset.row) + down, cells.length)];
    return row[clamp(Number(dataset.column) + right, row.length)];
  });
  const element = make("div", { className: "heat-map" }, table);
  let highlighted = [];

  function highlight(row, column) {
    highlighted.forEach((cell) => cell.classList.remove("on"));
    highlighted = [rowHeaders[row], columnHeaders[column], cells[row]?.[column]].filter(Boolean);
    highlighted.forEach((cell) => cell.classList.add("on"));
  }

  // The slanted headers need space above and to the right; the cells share the rest of the window, within limits.
  function fit() {
    const widest = (headers) => Math.max(0, ...headers.map((header) => header.firstChild.offsetWidth));
    const [rise, overhang] = [Math.sin, Math.cos].map((part) => widest(columnHeaders) * part(HEADER_ANGLE));
    const top = element.getBoundingClientRect().top + scrollY + rise + 60;
    const width = (element.clientWidth - widest(rowHeaders) - overhang - 24) / columnHeaders.length - CELL_GAP;
    const height = (innerHeight - top) / rowHeaders.length - CELL_GAP;
    const smallest = numbers ? MIN_CELL_WITH_NUMBERS : MIN_CELL;
    const cell = Math.max(smallest, Math.min(width, Math.max(height, 26), MAX_CELL));
    const sizes = { "header-rise": rise + 22, "header-overhang": overhang, cell };
    for (const name in sizes) table.style.setProperty(`--${name}`, `${sizes[name]}px`);
  }

  return { element, highlight, fit };
}

function styleCell(cell, weight, { colorOf, textColorOn }) {
  cell.role = "gridcell";
  cell.tabIndex = cell.dataset.row === "0" && cell.dataset.column === "0" ? 0 : -1;
  cell.style.backgroundColor = colorOf(weight);
  cell.style.setProperty("--cell-text", textColorOn(weight));
  cell.classList.toggle("nan", Number.isNaN(weight));
}
