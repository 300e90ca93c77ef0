// Weights of the viewer's data as a matrix: rows are queries, columns are keys.

// Ways to combine the heads into one matrix.
export const HEAD_REDUCTIONS = {
  mean: { title: "Average", reduce: (values) => values.reduce((sum, value) => sum + value, 0) / values.length },
  max: { title: "Maximum", reduce: (values) => Math.max(...values) },
};

// `head` is a head's number or a key of HEAD_REDUCTIONS; `scale` is the factor the stored integers were multiplied by.
export function weightMatrix(map, head, scale) {
  const unscaled = (integer) => (integer === null ? NaN : integer / scale);
  if (!Object.hasOwn(HEAD_REDUCTIONS, head)) return map.weights[head].map((row) => row.map(unscaled));
  const { reduce } = HEAD_REDUCTIONS[head];
  return map.rows.labels.map((_, row) => map.columns.labels.map((_, column) =>
    reduce(map.weights.map((matrix) => unscaled(matrix[row][column])))));
}

export const formatWeight = (weight, decimals) => (Number.isNaN(weight) ? "not a number" : weight.toFixed(decimals));
