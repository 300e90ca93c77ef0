// One sentence about what is pointed at.
import { make, readable } from "./dom.js";
import { said } from "./weights.js";

const HINT = "Point at a word or a weight, or use the arrow keys.";
const STRONGEST = 3;

const bold = (label) => make("b", {}, make("bdi", {}, readable(label)));
const figure = (weight) => make("span", { className: "value" }, said(weight, 3));

// Either index may be missing: a row alone looks at columns, a column alone is looked at by rows.
export function readout(map, matrix, row, column) {
  const [rows, columns] = [map.rows.labels, map.columns.labels];
  if (row === undefined && column === undefined) return [HINT];
  if (row === undefined) {
    return [bold(columns[column]), " is looked at most by ", ...strongest(rows, matrix.map((each) => each[column]))];
  }
  if (column === undefined) return [bold(rows[row]), " looks most at ", ...strongest(columns, matrix[row])];
  return [bold(rows[row]), " looks at ", bold(columns[column]), " ", figure(matrix[row][column])];
}

function strongest(labels, weights) {
  const best = [...weights.keys()].sort((one, other) => weights[other] - weights[one]).slice(0, STRONGEST);
  return best.flatMap((i) => [bold(labels[i]), " ", figure(weights[i]), ", "]).slice(0, -1);
}
