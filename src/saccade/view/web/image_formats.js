// Images for export: a list of shapes, rendered as SVG or on a canvas, with a white background in dark mode too.
import { isolated, makeSvg } from "./dom.js";
import { curvePath } from "./line_geometry.js";

const FONT_FAMILY = '"Source Serif 4", "Noto Serif", Georgia, "Times New Roman", serif';
const PNG_SCALE = 3; // PNG pixels per unit of the image: enough for print
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const MAX_CANVAS_SIDE = 12000; // pixels, which every browser supports

// ---- Shapes ----
export const rectangle = (x, y, width, height, fill) => ({ kind: "rectangle", x, y, width, height, fill });
export const line = (x1, y1, x2, y2, width, color, opacity) =>
  ({ kind: "line", x1, y1, x2, y2, width, color, opacity });
// `anchor`: whether x is the start, middle or end of the text; `angle`: degrees of rotation around (x, y).
export function text(content, x, y, { size = 15, color = "#1a1c1f", anchor = "start", angle = 0 } = {}) {
  const safe = RIGHT_TO_LEFT.test(content) ? isolated(content) : content;
  return { kind: "text", content: safe, x, y, size, color, anchor, angle };
}

const measuringContext = document.createElement("canvas").getContext("2d");
const fontOf = (size) => `${size}px ${FONT_FAMILY}`;

export function textWidth(content, size = 15) {
  measuringContext.font = fontOf(size);
  return measuringContext.measureText(content).width;
}

// Cut a text to a width, between user-perceived characters.
export function shortened(content, maxWidth, size = 15) {
  if (textWidth(content, size) <= maxWidth) return content;
  const characters = Array.from(new Intl.Segmenter().segment(content), ({ segment }) => segment);
  while (characters.length && textWidth(`${characters.join("")}…`, size) > maxWidth) characters.pop();
  return `${characters.join("")}…`;
}

// ---- SVG ----
// Characters that XML does not allow are replaced by U+FFFD, the replacement character.
const INVALID_IN_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const xmlText = (content) => content.toWellFormed().replace(INVALID_IN_XML, "\ufffd");

const SVG_ELEMENTS = {
  rectangle: ({ x, y, width, height, fill }) => makeSvg("rect", { x, y, width, height, fill }),
  line: ({ x1, y1, x2, y2, width, color, opacity }) => makeSvg("path", {
    d: curvePath(x1, y1, x2, y2), fill: "none", stroke: color, "stroke-width": width, "stroke-opacity": opacity,
  }),
  text: ({ content, x, y, size, color, anchor, angle }) => makeSvg("text", {
    x, y, "font-size": size, fill: color, "text-anchor": anchor, transform: `rotate(${angle} ${x} ${y})`,
  }, xmlText(content)),
};

export function svgSource({ title, width, height, shapes }) {
  const svg = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT_FAMILY },
    makeSvg("title", {}, xmlText(title)), makeSvg("rect", { width, height, fill: "#fff" }),
    ...shapes.map((shape) => SVG_ELEMENTS[shape.kind](shape)));
  return new XMLSerializer().serializeToString(svg);
}

// ---- Canvas ----
const TEXT_ALIGN = { start: "left", middle: "center", end: "right" };
const CANVAS_DRAWING = {
  rectangle(context, { x, y, width, height, fill }) {
    context.fillStyle = fill;
    context.fillRect(x, y, width, height);
  },
  line(context, { x1, y1, x2, y2, width, color, opacity }) {
    Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: opacity });
    context.stroke(new Path2D(curvePath(x1, y1, x2, y2)));
  },
  text(context, { content, x, y, size, color, anchor, angle }) {
    Object.assign(context, { fillStyle: color, font: fontOf(size), textAlign: TEXT_ALIGN[anchor] });
    context.translate(x, y);
    context.rotate((angle * Math.PI) / 180);
    context.fillText(content, 0, 0);
  },
};

export function imageCanvas({ width, height, shapes }) {
  const scale = Math.min(PNG_SCALE, MAX_CANVAS_SIDE / Math.max(width, height));
  const canvas = Object.assign(document.createElement("canvas"),
    { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  for (const shape of [rectangle(0, 0, width, height, "#fff"), ...shapes]) {
    context.save();
    CANVAS_DRAWING[shape.kind](context, shape);
    context.restore();
  }
  return canvas;
}
