// Building elements. Text of the data enters a page here, and only as text nodes.

export function make(tag, { data = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// White space alone would be an empty place, and a lone surrogate is no text at all.
export const readable = (label) => (label.trim() === "" ? "␣" : label.toWellFormed());
export const isSpecial = (label) => /^<[^<>\s]+>$/.test(label);

// Text in the middle of other text, whose direction does not spread beyond it.
export const isolated = (text) => `\u2068${text.toWellFormed()}\u2069`;
