// The weights as a table with headers. The heat map colors its cells; in the line view screen readers read it.
import { isSpecial, make, readable } from "./dom.js";
import { formatWeight } from "./weights.js";

export function weightTable(map, matrix) {
  const cells = matrix.map((weights, row) => weights.map((weight, column) =>
    make("td", { data: { row, column } }, formatWeight(weight, 2))));
  const columnHeaders = map.columns.labels.map((label, index) => headerCell(label, "column", index));
  const rowHeaders = map.rows.labels.map((label, index) => headerCell(label, "row", index));
  const rows = cells.map((rowCells, row) => make("tr", {}, rowHeaders[row], ...rowCells));
  const table = make("table", { ariaLabel: `${map.name}, rows are queries, columns are keys` },
    make("thead", {}, make("tr", {}, make("td"), ...columnHeaders)), make("tbody", {}, ...rows));
  return { table, cells, columnHeaders, rowHeaders };
}

// `axis`: "row" or "column".
function headerCell(label, axis, index) {
  const header = make("th", { scope: axis === "row" ? "row" : "col", title: label, data: { [axis]: index } },
    make("span", { dir: "auto" }, readable(label)));
  header.classList.toggle("special", isSpecial(label));
  return header;
}
