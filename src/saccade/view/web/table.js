// The weights as a table with its heads: what the heat map paints, and what a screen reader reads in the line view.
import { isSpecial, make, readable } from "./dom.js";
import { said } from "./weights.js";

export function weightTable(map, matrix) {
  const cells = matrix.map((weights, row) => weights.map((weight, column) =>
    make("td", { data: { row, column } }, said(weight, 2))));
  const columnHeads = map.columns.labels.map((label, index) => headOf(label, "column", index));
  const rowHeads = map.rows.labels.map((label, index) => headOf(label, "row", index));
  const lines = cells.map((each, row) => make("tr", {}, rowHeads[row], ...each));
  const table = make("table", { ariaLabel: `${map.name}, rows look at columns` },
    make("thead", {}, make("tr", {}, make("td"), ...columnHeads)), make("tbody", {}, ...lines));
  return { table, cells, columnHeads, rowHeads };
}

function headOf(label, side, index) {
  const head = make("th", { scope: side === "row" ? "row" : "col", title: label, data: { [side]: index } },
    make("span", { dir: "auto" }, readable(label)));
  head.classList.toggle("special", isSpecial(label));
  return head;
}
