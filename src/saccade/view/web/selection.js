// What the viewer shows (sentence, view, level, map, head), and the options there are.
import { HEAD_REDUCTIONS } from "./weights.js";

export const KINDS = {
  cross: { title: "Cross", rows: "Translation", columns: "Source" },
  encoder: { title: "Encoder", rows: "Source (queries)", columns: "Source (keys)" },
  decoder: { title: "Decoder", rows: "Translation (queries)", columns: "Translation (keys)" },
};
export const LEVELS = { words: "Words", pieces: "Pieces" };
export const VIEWS = { heatmap: "Heat map", lines: "Lines" };

export const DEFAULT_SELECTION = {
  sentence: 0, view: "heatmap", level: "words", map: "", head: "mean", numbers: false,
};

export const levelsOf = (sentence) => Object.keys(LEVELS).filter((level) => sentence.levels[level]);
export const kindsOf = (maps) => Object.keys(KINDS).filter((kind) => ofKind(maps, kind).length);
export const ofKind = (maps, kind) => maps.filter((map) => map.kind === kind);

// Replace values that do not exist in the data (from the URL, or from the previous sentence) by defaults. Returns
// the selection with its sentence, the maps of that sentence and the selected map; `map` is undefined if there is none.
export function resolveSelection(data, requested) {
  const selection = { ...requested };
  if (!Object.hasOwn(VIEWS, selection.view)) selection.view = "heatmap";
  if (!data.sentences[selection.sentence]) selection.sentence = 0;
  const sentence = data.sentences[selection.sentence];
  if (!sentence) return { selection, maps: [] };
  if (!levelsOf(sentence).includes(selection.level)) selection.level = levelsOf(sentence)[0];
  const maps = sentence.levels[selection.level];
  const map = maps.find(({ name }) => name === selection.map) ?? ofKind(maps, kindsOf(maps)[0]).at(-1);
  if (!map) return { selection, sentence, maps };
  selection.map = map.name;
  const headExists = Object.hasOwn(HEAD_REDUCTIONS, selection.head) || Object.hasOwn(map.weights, selection.head);
  if (!headExists) selection.head = "mean";
  return { selection, sentence, maps, map };
}

// The layer number in the module's name, with the number of the pass if layers share weights (`0@1`); the whole names
// if these numbers are not unique.
export function layerTitles(maps) {
  const numbers = maps.map(({ name }) => name.match(/layers\.(\d+)[^@]*(@\d+)?$/)?.slice(1).join(""));
  return new Set(numbers.filter(Boolean)).size === maps.length ? numbers : maps.map((map) => map.name);
}

export function selectionFromUrl() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const selection = { ...DEFAULT_SELECTION, sentence: Number(parameters.get("sentence") ?? 0) };
  for (const key of ["view", "level", "map", "head"]) if (parameters.has(key)) selection[key] = parameters.get(key);
  selection.numbers = parameters.get("numbers") === "true";
  return selection;
}

export function saveToUrl(selection) {
  // Fails for a page inside a notebook, which has no URL of its own. The viewer works without it.
  try { history.replaceState(null, "", `#${new URLSearchParams(selection)}`); } catch {}
}
