// Creating elements. Text from the data is inserted as text nodes only, never as markup.

export function make(tag, { data = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...children);
  return element;
}

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG_NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A label with visible text: white space is shown as ␣, and lone surrogates, which are not valid text, are replaced.
export const readable = (label) => (label.trim() === "" ? "␣" : label.toWellFormed());
export const isSpecial = (label) => /^<[^<>\s]+>$/.test(label); // such as </s>

// The text between the Unicode characters FSI and PDI, so that its direction does not affect the text around it.
export const isolated = (text) => `\u2068${text.toWellFormed()}\u2069`;
