// From the whole numbers of the data to one matrix of weights: rows look at columns.

// Ways to see all heads as one.
export const JOINS = {
  mean: { title: "Average", join: (values) => values.reduce((sum, value) => sum + value, 0) / values.length },
  max: { title: "Maximum", join: (values) => Math.max(...values) },
};

export function matrixOf(map, head, scale) {
  const weightOf = (whole) => (whole === null ? NaN : whole / scale);
  if (!Object.hasOwn(JOINS, head)) return map.weights[head].map((row) => row.map(weightOf));
  const { join } = JOINS[head];
  return map.rows.labels.map((_, row) => map.columns.labels.map((_, column) =>
    join(map.weights.map((matrix) => weightOf(matrix[row][column])))));
}

export const said = (weight, places) => (Number.isNaN(weight) ? "not a number" : weight.toFixed(places));
