// A text whose sentences can be chosen and whose words can light up.
import { make } from "./view/dom.js";

// Words are what white space parts, and white space is what Python takes for it: links count words that way.
const WORDS = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;

export const wordsOf = (text) => text.match(WORDS) ?? [];

export class Sheet {
  #sentences = [];
  #begins = [];

  constructor(element) { this.element = element; }

  get text() { return this.element.textContent; }
  get sentences() { return this.#sentences; }

  // `sentences` stand in `text` in this order, with nothing but white space between them.
  show(text, sentences = []) {
    const nodes = [];
    let end = 0;
    this.#begins = sentences.map((sentence) => {
      const begin = text.indexOf(sentence, end);
      nodes.push(text.slice(end, begin), make("span", { className: "sentence" }, ...wordNodes(sentence)));
      end = begin + sentence.length;
      return begin;
    });
    this.element.replaceChildren(...nodes, text.slice(end));
    this.#sentences = [...this.element.children];
  }

  put(index, sentence) { this.#sentences[index].replaceChildren(...wordNodes(sentence)); }

  choose(index) {
    this.#sentences.forEach((span, each) => span.classList.toggle("chosen", each === index));
  }

  // The sentence that a place in the text belongs to; the white space behind it is its own.
  sentenceAt(offset) { return Math.max(0, this.#begins.findLastIndex((begin) => begin <= offset)); }

  // The word that an element is.
  placeOf(element) {
    const sentence = this.#sentences.indexOf(element.parentElement);
    return sentence < 0 ? undefined : { sentence, word: [...element.parentElement.children].indexOf(element) };
  }

  light(sentence, words, how) {
    for (const word of words) this.#sentences[sentence].children[word]?.classList.add(how);
  }

  rest() {
    for (const word of this.element.querySelectorAll(".on, .linked")) word.classList.remove("on", "linked");
  }
}

function wordNodes(sentence) {
  const nodes = [];
  let end = 0;
  for (const { 0: word, index } of sentence.matchAll(WORDS)) {
    nodes.push(sentence.slice(end, index), make("span", { className: "word" }, word));
    end = index + word.length;
  }
  return [...nodes, sentence.slice(end)];
}
