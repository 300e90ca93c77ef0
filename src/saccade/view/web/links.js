// The geometry of the line view, on the screen and on paper.

const FAINTEST = 0.01; // a line weaker than this could not be seen

export const thicknessOf = (weight) => 0.5 + 5.5 * weight;

// Both sentences fill the same height, whatever their lengths, so that lines between like places are level.
export const heightOf = (map, step) => Math.max(map.columns.labels.length, map.rows.labels.length) * step;
export const middleOf = (index, count, height) => ((index + 0.5) / count) * height;

// Weights worth a line, weak ones first, so that strong lines lie on top.
export function linksOf(matrix) {
  const links = matrix.flatMap((weights, row) => weights.map((weight, column) => ({ row, column, weight })));
  return links.filter(({ weight }) => !(weight < FAINTEST)).sort((one, other) => one.weight - other.weight);
}

// From left to right, leaving and arriving level.
export function curve(left, from, right, to) {
  const middle = (left + right) / 2;
  return `M${left} ${from}C${middle} ${from} ${middle} ${to} ${right} ${to}`;
}
