// The options of the selects for languages and models, and the valid selections.

export const AUTO = "auto";
const BY_LANGUAGE = ""; // the target or model depends on the detected language

const unique = (items) => [...new Set(items)];
const targetsOfSource = (models, code) =>
  unique(models.filter((model) => model.source === code).map(({ target }) => target));
const sourcesOfTarget = (models, code) =>
  unique(models.filter((model) => model.target === code).map(({ source }) => source));

// The options are [value, title]; the first one is the default.
export function sourceOptions(models) {
  const named = unique(models.map((model) => model.source)).map((code) => [code, nameOf(models, code)]);
  return named.length > 1 ? [...named, [AUTO, "Detect language"]] : named;
}

export function targetOptions(models, source) {
  const named = (codes) => codes.map((code) => [code, nameOf(models, code)]);
  if (source !== AUTO) return named(targetsOfSource(models, source));
  const all = unique(models.map((model) => model.target));
  if (all.length === 1 || models.some((model) => targetsOfSource(models, model.source).length > 1)) return named(all);
  return [[BY_LANGUAGE, "Automatic"], ...named(all.filter((target) => sourcesOfTarget(models, target).length > 1))];
}

export function modelOptions(models, { source, target }) {
  if (source === AUTO) return [[BY_LANGUAGE, "Automatic"]];
  return models.filter((model) => model.source === source && model.target === target).map(({ name }) => [name, name]);
}

// The requested selection, with a default for each value that is missing or not available.
export function validSelection(models, requested) {
  const validValue = (options, value) => (options.find(([option]) => option === value) ?? options[0])[0];
  const named = models.find(({ name }) => name === requested.model);
  const source = validValue(sourceOptions(models), requested.source ?? named?.source);
  const target = validValue(targetOptions(models, source), requested.target ?? named?.target);
  return { source, target, model: validValue(modelOptions(models, { source, target }), requested.model) };
}

// The selection for the opposite direction; undefined if it is not served.
export function reverseOf(models, { source, target }) {
  const reverse = models.find((model) => model.source === target && model.target === source);
  return reverse && { source: target, target: source, model: reverse.name };
}

// Example texts in the selected source language, or one in each language if it is detected.
export function examplesOf(models, { source, target, model }) {
  if (model) return models.find(({ name }) => name === model).examples;
  const first = (code) => models.find((other) => other.source === code && (!target || other.target === target));
  return unique(models.map((other) => other.source)).flatMap((code) => first(code)?.examples.slice(0, 1) ?? []);
}

export function nameOf(models, code) {
  const bySource = models.find((model) => model.source === code);
  return bySource ? bySource.source_name : models.find((model) => model.target === code)?.target_name ?? code;
}
