// How a weight looks: one scale from 0 to 1 on every map, so that maps may be compared.
import { make } from "./dom.js";

const BEND = 0.7; // small weights should be seen
export const TICKS = [0, 0.05, 0.2, 0.5, 1];

export const levelOf = (weight) => Math.min(1, Math.max(0, weight)) ** BEND;
export const weightAt = (level) => level ** (1 / BEND);

// The colours in force at an element, from no weight to all of it. They change when the reader turns dark mode on;
// those of `--light-ramp` do not.
export function paletteAt(element, ramp = "--ramp") {
  const colours = getComputedStyle(element).getPropertyValue(ramp).trim().split(/\s+/)
    .map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  const mix = (weight) => {
    const position = levelOf(weight) * (colours.length - 1);
    const below = Math.min(Math.floor(position), colours.length - 2);
    return colours[below].map((from, i) => Math.round(from + (colours[below + 1][i] - from) * (position - below)));
  };
  return {
    mix,
    colourOf: (weight) => (Number.isNaN(weight) ? "" : `rgb(${mix(weight).join(", ")})`),
    inkOn: (weight) => (Number.isNaN(weight) ? "" : contrasting(mix(weight))),
  };
}

// Black or white, whichever is read better on a colour (its luminance as WCAG defines it).
function contrasting(colour) {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.map((part) => linear(part / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Colour places by their weights; without weights they go back to what they were.
export function tint(places, weights, { colourOf, inkOn }) {
  places.forEach((place, index) => {
    place.style.backgroundColor = weights ? colourOf(weights[index]) : "";
    place.style.color = weights ? inkOn(weights[index]) : "";
  });
}

// One pixel a weight; the style sheet makes it as large as it should be.
export function paint(canvas, matrix, { mix }) {
  const [height, width] = [matrix.length, matrix[0]?.length ?? 0];
  if (!height || !width) return;
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  matrix.flat().forEach((weight, i) => image.data.set([...mix(weight || 0), 255], i * 4));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export function drawScale(element, palette) {
  const canvas = make("canvas");
  paint(canvas, [Array.from({ length: 200 }, (_, i) => weightAt(i / 199))], palette);
  const ticks = TICKS.map((weight) => make("span", {}, String(weight)));
  ticks.forEach((tick, i) => { tick.style.left = `${levelOf(TICKS[i]) * 100}%`; });
  element.replaceChildren(canvas, ...ticks);
}
