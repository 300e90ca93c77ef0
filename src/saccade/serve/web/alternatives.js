// The alternative translations of a sentence, each with its score. A click puts one into the translation.
import { wordsOf } from "./text_view.js";
import { make } from "./view/dom.js";

export class Alternatives {
  #buttons = [];

  // `onSelect(rank)`: the user clicked the alternative of this rank.
  constructor(element, onSelect) { Object.assign(this, { element, onSelect }); }

  // `outputs` are all outputs of the sentence, best first; `rank` is the one in the translation.
  show({ outputs, rank }, language) {
    this.element.hidden = outputs.length < 2;
    this.#buttons = outputs.map((_, index) => {
      const button = make("button", { type: "button", className: "alternative" });
      button.addEventListener("click", () => this.onSelect(index));
      return button;
    });
    this.element.querySelector("ul").replaceChildren(...this.#buttons.map((button) => make("li", {}, button)));
    this.update({ outputs, rank }, language);
  }

  // Show which output is in the translation, and emphasize the words in which the others differ from it.
  update({ outputs, rank }, language) {
    const current = wordsOf(outputs[rank]?.text ?? "");
    this.#buttons.forEach((button, index) => {
      button.ariaPressed = String(index === rank);
      const words = emphasizeDifferences(wordsOf(outputs[index].text), current);
      const text = make("span", { lang: language, dir: "auto" }, ...words);
      button.replaceChildren(text, make("span", { className: "score caption" }, formatScore(outputs[index].score)));
    });
  }
}

const formatScore = (score) => score.toFixed(2).replace("-", "−");

function emphasizeDifferences(words, others) {
  const common = longestCommonSubsequence(words, others);
  return words.flatMap((word, index) => [common.has(index) ? word : make("b", {}, word), " "]);
}

// The indices in `words` of a longest common subsequence with `others`.
function longestCommonSubsequence(words, others) {
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = words[i] === others[j]
        ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const common = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length;) {
    if (words[i] === others[j]) { common.add(i); i += 1; j += 1; }
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return common;
}
