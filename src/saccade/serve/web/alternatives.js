// The ways to say a sentence, each with its score. A click puts one into the translation.
import { wordsOf } from "./sheet.js";
import { make } from "./view/dom.js";

export class Alternatives {
  #buttons = [];

  // `put(rank)`: one was clicked.
  constructor(element, put) { Object.assign(this, { element, put }); }

  show({ ways, rank }, language) {
    this.element.hidden = ways.length < 2;
    this.#buttons = ways.map((_, each) => {
      const button = make("button", { type: "button", className: "way" });
      button.addEventListener("click", () => this.put(each));
      return button;
    });
    this.element.querySelector("ul").replaceChildren(...this.#buttons.map((button) => make("li", {}, button)));
    this.mark({ ways, rank }, language);
  }

  // Say which one stands in the translation, and in which words the others differ from it.
  mark({ ways, rank }, language) {
    const current = wordsOf(ways[rank]?.text ?? "");
    this.#buttons.forEach((button, each) => {
      button.ariaPressed = String(each === rank);
      const text = make("span", { lang: language, dir: "auto" }, ...differing(wordsOf(ways[each].text), current));
      button.replaceChildren(text, make("span", { className: "score caption" }, inNumbers(ways[each].score)));
    });
  }
}

const inNumbers = (score) => score.toFixed(2).replace("-", "−");

function differing(words, others) {
  const shared = sharedWords(words, others);
  return words.flatMap((word, index) => [shared.has(index) ? word : make("b", {}, word), " "]);
}

// The places in `words` of a longest common subsequence with `others`.
function sharedWords(words, others) {
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = words[i] === others[j]
        ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const shared = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length;) {
    if (words[i] === others[j]) { shared.add(i); i += 1; j += 1; }
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return shared;
}
