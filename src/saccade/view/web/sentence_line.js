// A sentence as it is read, each piece of it coloured by how much it is looked at.
import { tint } from "./colours.js";
import { isSpecial, make, readable } from "./dom.js";

export function sentenceLine(side) {
  const caption = make("span", { className: "caption" });
  const line = make("p", { className: "line", dir: "auto" });
  let pieces = [];

  // Pieces of one word stand together, so that the line reads like the sentence it is.
  function show(title, axis, long) {
    caption.textContent = title;
    pieces = axis.labels.map((label, index) => pieceOf(label, side, index));
    const words = [];
    pieces.forEach((piece, index) => {
      if (axis.words[index] !== axis.words[index - 1]) words.push(make("span", { className: "word" }));
      words.at(-1).append(piece);
    });
    line.classList.toggle("long", long);
    line.replaceChildren(...words.flatMap((word) => [word, " "]));
  }

  function shine(index, weights, palette) {
    tint(pieces, weights, palette);
    pieces.forEach((piece, each) => piece.classList.toggle("on", each === index));
  }

  // What scrolls must be in reach of the keyboard.
  function fit() {
    if (line.scrollHeight > line.clientHeight) line.tabIndex = 0;
    else line.removeAttribute("tabindex");
  }

  return { element: make("div", {}, caption, line), show, shine, fit };
}

function pieceOf(label, side, index) {
  const piece = make("span", { className: "piece", data: { [side]: index } }, readable(label));
  piece.classList.toggle("special", isSpecial(label));
  if (isSpecial(label)) piece.dir = "ltr"; // or a leading "<s>" would turn a right-to-left sentence round
  return piece;
}
