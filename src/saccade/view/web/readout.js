// One sentence about the word or weight at the pointer.
import { make, readable } from "./dom.js";
import { formatWeight } from "./weights.js";

const HINT = "Point at a word or a weight, or use the arrow keys.";
const WEIGHTS_SHOWN = 3; // the largest weights of a word

const bold = (label) => make("b", {}, make("bdi", {}, readable(label)));
const value = (weight) => make("span", { className: "value" }, formatWeight(weight, 3));

// The children of the readout. With a row only: the keys with its largest weights; with a column only: the queries.
export function readout(map, matrix, row, column) {
  const [rows, columns] = [map.rows.labels, map.columns.labels];
  if (row === undefined && column === undefined) return [HINT];
  if (row === undefined) {
    const weights = matrix.map((rowWeights) => rowWeights[column]);
    return [bold(columns[column]), " is attended to most by ", ...largest(rows, weights)];
  }
  if (column === undefined) return [bold(rows[row]), " attends most to ", ...largest(columns, matrix[row])];
  return [bold(rows[row]), " attends to ", bold(columns[column]), " ", value(matrix[row][column])];
}

function largest(labels, weights) {
  const indices = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, WEIGHTS_SHOWN);
  return indices.flatMap((i) => [bold(labels[i]), " ", value(weights[i]), ", "]).slice(0, -1);
}
