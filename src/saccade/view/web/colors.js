// The color of a weight. The scale from 0 to 1 is the same on every map, so that maps can be compared.
import { make } from "./dom.js";

const EXPONENT = 0.7; // below 1, so that small weights are visible
export const TICKS = [0, 0.05, 0.2, 0.5, 1];

// The intensity of a weight, from 0 to 1, and its inverse.
export const intensityOf = (weight) => Math.min(1, Math.max(0, weight)) ** EXPONENT;
export const weightAt = (intensity) => intensity ** (1 / EXPONENT);

// The palette of an element, which changes with dark mode. That of `--light-ramp` does not.
export function paletteOf(element, ramp = "--ramp") {
  const stops = getComputedStyle(element).getPropertyValue(ramp).trim().split(/\s+/)
    .map((color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16)));
  const mix = (weight) => {
    const position = intensityOf(weight) * (stops.length - 1);
    const below = Math.min(Math.floor(position), stops.length - 2);
    return stops[below].map((from, i) => Math.round(from + (stops[below + 1][i] - from) * (position - below)));
  };
  return {
    mix,
    colorOf: (weight) => (Number.isNaN(weight) ? "" : `rgb(${mix(weight).join(", ")})`),
    textColorOn: (weight) => (Number.isNaN(weight) ? "" : contrasting(mix(weight))),
  };
}

// Black or white, whichever has more contrast to a color (by its relative luminance as WCAG defines it).
function contrasting(color) {
  const linear = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = color.map((channel) => linear(channel / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// Color each element by its weight; without weights, remove the colors.
export function colorByWeight(elements, weights, { colorOf, textColorOn }) {
  elements.forEach((element, index) => {
    element.style.backgroundColor = weights ? colorOf(weights[index]) : "";
    element.style.color = weights ? textColorOn(weights[index]) : "";
  });
}

// Draw a matrix with one pixel per weight; the style sheet scales the canvas.
export function drawMatrix(canvas, matrix, { mix }) {
  const [height, width] = [matrix.length, matrix[0]?.length ?? 0];
  if (!height || !width) return;
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  matrix.flat().forEach((weight, i) => image.data.set([...mix(weight || 0), 255], i * 4));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export function drawColorScale(element, palette) {
  const canvas = make("canvas");
  drawMatrix(canvas, [Array.from({ length: 200 }, (_, i) => weightAt(i / 199))], palette);
  const ticks = TICKS.map((weight) => make("span", {}, String(weight)));
  ticks.forEach((tick, i) => { tick.style.left = `${intensityOf(TICKS[i]) * 100}%`; });
  element.replaceChildren(canvas, ...ticks);
}
