// The heat map: the table of weights, painted. Its numbers are there for a screen reader even when they are not shown.
import { weightTable } from "./table.js";
import { make } from "./dom.js";
import { clamp, walkable } from "./walking.js";

const SLANT = (50 * Math.PI) / 180; // of the column heads, as in the style sheet
const GAP = 2.1;
const SMALLEST = 20;
const SMALLEST_WITH_NUMBERS = 34;
const LARGEST = 52;

export function heatMap(map, matrix, palette, numbers) {
  const { table, cells, columnHeads, rowHeads } = weightTable(map, matrix);
  table.role = "grid";
  table.classList.toggle("numbers", numbers);
  cells.flat().forEach((cell) => dress(cell, matrix[cell.dataset.row][cell.dataset.column], palette));
  walkable(table, ({ dataset }, down, right) => {
    const row = cells[clamp(Number(dataset.row) + down, cells.length)];
    return row[clamp(Number(dataset.column) + right, row.length)];
  });
  const element = make("div", { className: "heat-map" }, table);
  let lit = [];

  function shine(row, column) {
    lit.forEach((each) => each.classList.remove("on"));
    lit = [rowHeads[row], columnHeads[column], cells[row]?.[column]].filter(Boolean);
    lit.forEach((each) => each.classList.add("on"));
  }

  // Slanted heads need room upwards and to the right; cells share what is left of the screen, within reason.
  function fit() {
    const widest = (heads) => Math.max(0, ...heads.map((head) => head.firstChild.offsetWidth));
    const [rise, lean] = [Math.sin, Math.cos].map((part) => widest(columnHeads) * part(SLANT));
    const top = element.getBoundingClientRect().top + scrollY + rise + 60;
    const width = (element.clientWidth - widest(rowHeads) - lean - 24) / columnHeads.length - GAP;
    const height = (innerHeight - top) / rowHeads.length - GAP;
    const cell = Math.max(numbers ? SMALLEST_WITH_NUMBERS : SMALLEST, Math.min(width, Math.max(height, 26), LARGEST));
    const sizes = { rise: rise + 22, lean, cell };
    for (const name in sizes) table.style.setProperty(`--${name}`, `${sizes[name]}px`);
  }

  return { element, shine, fit };
}

function dress(cell, weight, { colourOf, inkOn }) {
  cell.role = "gridcell";
  cell.tabIndex = cell.dataset.row === "0" && cell.dataset.column === "0" ? 0 : -1;
  cell.style.backgroundColor = colourOf(weight);
  cell.style.setProperty("--on-cell", inkOn(weight));
  cell.classList.toggle("void", Number.isNaN(weight));
}
