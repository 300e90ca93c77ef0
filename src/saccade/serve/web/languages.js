// Which languages and models there are, and what a choice among them means.

export const AUTO = "auto";
const BY_LANGUAGE = ""; // a target or model that follows from the language found

const unique = (items) => [...new Set(items)];
const targetsFrom = (models, code) => unique(models.filter((each) => each.source === code).map(({ target }) => target));
const sourcesInto = (models, code) => unique(models.filter((each) => each.target === code).map(({ source }) => source));

// Each as [value, title]; the first is the usual one.
export function sourcesOf(models) {
  const named = unique(models.map((model) => model.source)).map((code) => [code, nameOf(models, code)]);
  return named.length > 1 ? [...named, [AUTO, "Detect language"]] : named;
}

export function targetsOf(models, source) {
  const named = (codes) => codes.map((code) => [code, nameOf(models, code)]);
  if (source !== AUTO) return named(targetsFrom(models, source));
  const all = unique(models.map((model) => model.target));
  if (all.length === 1 || models.some((model) => targetsFrom(models, model.source).length > 1)) return named(all);
  return [[BY_LANGUAGE, "Automatic"], ...named(all.filter((target) => sourcesInto(models, target).length > 1))];
}

export function modelsOf(models, { source, target }) {
  if (source === AUTO) return [[BY_LANGUAGE, "Automatic"]];
  return models.filter((model) => model.source === source && model.target === target).map(({ name }) => [name, name]);
}

// Whatever was asked for, a choice that exists.
export function settledChoice(models, asked) {
  const among = (options, value) => (options.find(([each]) => each === value) ?? options[0])[0];
  const named = models.find(({ name }) => name === asked.model);
  const source = among(sourcesOf(models), asked.source ?? named?.source);
  const target = among(targetsOf(models, source), asked.target ?? named?.target);
  return { source, target, model: among(modelsOf(models, { source, target }), asked.model) };
}

// The way back from a pair, where it is served.
export function reverseOf(models, { source, target }) {
  const back = models.find((model) => model.source === target && model.target === source);
  return back && { source: target, target: source, model: back.name };
}

export function examplesOf(models, { source, target, model }) {
  if (model) return models.find(({ name }) => name === model).examples;
  const first = (code) => models.find((each) => each.source === code && (!target || each.target === target));
  return unique(models.map((each) => each.source)).flatMap((code) => first(code)?.examples.slice(0, 1) ?? []);
}

export function nameOf(models, code) {
  const from = models.find((model) => model.source === code);
  return from ? from.source_name : models.find((model) => model.target === code)?.target_name ?? code;
}
