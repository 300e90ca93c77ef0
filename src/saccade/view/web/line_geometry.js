// The geometry of the line view, which the page and the exported image share.

const MIN_WEIGHT = 0.01; // thinner lines would be invisible

export const thicknessOf = (weight) => 0.5 + 5.5 * weight;

// Both sentences have the same height, whatever their lengths, so that a line between equal positions is horizontal.
export const heightOf = (map, rowHeight) => Math.max(map.columns.labels.length, map.rows.labels.length) * rowHeight;
export const middleOf = (index, count, height) => ((index + 0.5) / count) * height;

// The weights that are drawn as lines, in ascending order, so that the thickest lines are on top.
export function linesOf(matrix) {
  const lines = matrix.flatMap((weights, row) => weights.map((weight, column) => ({ row, column, weight })));
  return lines.filter(({ weight }) => !(weight < MIN_WEIGHT)).sort((a, b) => a.weight - b.weight);
}

// The path data of a curve from (x1, y1) to (x2, y2) that is horizontal at both ends.
export function curvePath(x1, y1, x2, y2) {
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}
