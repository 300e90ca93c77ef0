// A sentence whose pieces are colored by their attention weights.
import { colorByWeight } from "./colors.js";
import { isSpecial, make, readable } from "./dom.js";

// `axis`: "row" or "column", the axis of the map that the sentence belongs to.
export function sentenceLine(axis) {
  const caption = make("span", { className: "caption" });
  const line = make("p", { className: "line", dir: "auto" });
  let pieces = [];

  // Pieces of one word are wrapped in one element, so that the line reads as a sentence.
  function show(title, { labels, words }, long) {
    caption.textContent = title;
    pieces = labels.map((label, index) => pieceElement(label, axis, index));
    const wordElements = [];
    pieces.forEach((piece, index) => {
      if (words[index] !== words[index - 1]) wordElements.push(make("span", { className: "word" }));
      wordElements.at(-1).append(piece);
    });
    line.classList.toggle("long", long);
    line.replaceChildren(...wordElements.flatMap((word) => [word, " "]));
  }

  function highlight(index, weights, palette) {
    colorByWeight(pieces, weights, palette);
    pieces.forEach((piece, i) => piece.classList.toggle("on", i === index));
  }

  // An element that scrolls must be focusable, so that the keyboard can scroll it.
  function fit() {
    if (line.scrollHeight > line.clientHeight) line.tabIndex = 0;
    else line.removeAttribute("tabindex");
  }

  return { element: make("div", {}, caption, line), show, highlight, fit };
}

function pieceElement(label, axis, index) {
  const piece = make("span", { className: "piece", data: { [axis]: index } }, readable(label));
  piece.classList.toggle("special", isSpecial(label));
  if (isSpecial(label)) piece.dir = "ltr"; // otherwise a leading "<s>" would reverse a right-to-left sentence
  return piece;
}
