// What is chosen, and what there is to choose from.
import { JOINS } from "./weights.js";

export const KINDS = {
  cross: { title: "Cross", rows: "Translation", columns: "Source" },
  encoder: { title: "Encoder", rows: "Source, looking", columns: "Source, looked at" },
  decoder: { title: "Decoder", rows: "Translation, looking", columns: "Translation, looked at" },
};
export const LEVELS = { words: "Words", pieces: "Pieces" };
export const VIEWS = { map: "Heat map", lines: "Lines" };

export const FIRST_CHOICE = { sentence: 0, view: "map", level: "words", map: "", head: "mean", numbers: false };

export const levelsOf = (sentence) => Object.keys(LEVELS).filter((level) => sentence.levels[level]);
export const kindsOf = (maps) => Object.keys(KINDS).filter((kind) => ofKind(maps, kind).length);
export const ofKind = (maps, kind) => maps.filter((map) => map.kind === kind);

// Whatever an address or an earlier sentence asked for, end with a choice that exists.
// Returns it with the sentence, its maps and the map it means; no map where there is nothing to show.
export function settled(data, asked) {
  const choice = { ...asked };
  if (!Object.hasOwn(VIEWS, choice.view)) choice.view = "map";
  if (!data.sentences[choice.sentence]) choice.sentence = 0;
  const sentence = data.sentences[choice.sentence];
  if (!sentence) return { choice, maps: [] };
  if (!levelsOf(sentence).includes(choice.level)) choice.level = levelsOf(sentence)[0];
  const maps = sentence.levels[choice.level];
  const map = maps.find(({ name }) => name === choice.map) ?? ofKind(maps, kindsOf(maps)[0]).at(-1);
  if (!map) return { choice, sentence, maps };
  choice.map = map.name;
  if (!Object.hasOwn(JOINS, choice.head) && !Object.hasOwn(map.weights, choice.head)) choice.head = "mean";
  return { choice, sentence, maps, map };
}

// The layer's number as in the model's own names, with the visit's where a layer is visited again (`0@1`); or the
// whole name where that would be ambiguous.
export function layerTitles(maps) {
  const numbers = maps.map(({ name }) => name.match(/layers\.(\d+)[^@]*(@\d+)?$/)?.slice(1).join(""));
  return new Set(numbers.filter(Boolean)).size === maps.length ? numbers : maps.map((map) => map.name);
}

export function choiceInAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const choice = { ...FIRST_CHOICE, sentence: Number(asked.get("sentence") ?? 0) };
  for (const key of ["view", "level", "map", "head"]) if (asked.has(key)) choice[key] = asked.get(key);
  choice.numbers = asked.get("numbers") === "true";
  return choice;
}

export function keepInAddress(choice) {
  // A page shown inside a notebook has no address of its own; everything else still works.
  try { history.replaceState(null, "", `#${new URLSearchParams(choice)}`); } catch {}
}
