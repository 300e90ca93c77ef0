// A picture is a list of shapes, drawn as SVG or on a canvas. It carries its own colours, on white paper.
import { isolated, makeSvg } from "./dom.js";
import { curve } from "./links.js";

const FAMILY = '"Source Serif 4", "Noto Serif", Georgia, "Times New Roman", serif';
const SHARPNESS = 3; // pixels of a PNG for each of the picture's: enough for print
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const LARGEST_CANVAS = 12000; // pixels on a side, which every browser can hold

export const rectangle = (x, y, width, height, fill) => ({ kind: "rectangle", x, y, width, height, fill });
export const line = (left, from, right, to, width, colour, opacity) =>
  ({ kind: "line", left, from, right, to, width, colour, opacity });
// `anchor`: start, middle or end of the text stands at x; `turn`: degrees round that point.
export const text = (words, x, y, { size = 15, colour = "#1a1c1f", anchor = "start", turn = 0 } = {}) =>
  ({ kind: "text", words: RIGHT_TO_LEFT.test(words) ? isolated(words) : words, x, y, size, colour, anchor, turn });

const measuring = document.createElement("canvas").getContext("2d");
const fontOf = (size) => `${size}px ${FAMILY}`;

export function widthOf(words, size = 15) {
  measuring.font = fontOf(size);
  return measuring.measureText(words).width;
}

// As much of a text as fits, a letter with its marks at a time.
export function shortened(words, most, size = 15) {
  if (widthOf(words, size) <= most) return words;
  const letters = Array.from(new Intl.Segmenter().segment(words), ({ segment }) => segment);
  while (letters.length && widthOf(`${letters.join("")}…`, size) > most) letters.pop();
  return `${letters.join("")}…`;
}

// ---- SVG ----
// Characters that no XML file may hold are shown as the character that stands for such.
const OUTSIDE_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const inXml = (words) => words.toWellFormed().replace(OUTSIDE_XML, "\ufffd");

const ELEMENTS = {
  rectangle: ({ x, y, width, height, fill }) => makeSvg("rect", { x, y, width, height, fill }),
  line: ({ left, from, right, to, width, colour, opacity }) => makeSvg("path", {
    d: curve(left, from, right, to), fill: "none", stroke: colour, "stroke-width": width, "stroke-opacity": opacity,
  }),
  text: ({ words, x, y, size, colour, anchor, turn }) => makeSvg("text", {
    x, y, "font-size": size, fill: colour, "text-anchor": anchor, transform: `rotate(${turn} ${x} ${y})`,
  }, inXml(words)),
};

export function asSvg({ title, width, height, shapes }) {
  const picture = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FAMILY },
    makeSvg("title", {}, inXml(title)), makeSvg("rect", { width, height, fill: "#fff" }),
    ...shapes.map((shape) => ELEMENTS[shape.kind](shape)));
  return new XMLSerializer().serializeToString(picture);
}

// ---- Canvas ----
const ALIGNMENTS = { start: "left", middle: "center", end: "right" };
const STROKES = {
  rectangle(pen, { x, y, width, height, fill }) {
    pen.fillStyle = fill;
    pen.fillRect(x, y, width, height);
  },
  line(pen, { left, from, right, to, width, colour, opacity }) {
    Object.assign(pen, { strokeStyle: colour, lineWidth: width, globalAlpha: opacity });
    pen.stroke(new Path2D(curve(left, from, right, to)));
  },
  text(pen, { words, x, y, size, colour, anchor, turn }) {
    Object.assign(pen, { fillStyle: colour, font: fontOf(size), textAlign: ALIGNMENTS[anchor] });
    pen.translate(x, y);
    pen.rotate((turn * Math.PI) / 180);
    pen.fillText(words, 0, 0);
  },
};

export function asCanvas({ width, height, shapes }) {
  const sharpness = Math.min(SHARPNESS, LARGEST_CANVAS / Math.max(width, height));
  const canvas = Object.assign(document.createElement("canvas"),
    { width: Math.ceil(width * sharpness), height: Math.ceil(height * sharpness) });
  const pen = canvas.getContext("2d");
  pen.scale(sharpness, sharpness);
  for (const shape of [rectangle(0, 0, width, height, "#fff"), ...shapes]) {
    pen.save();
    STROKES[shape.kind](pen, shape);
    pen.restore();
  }
  return canvas;
}
