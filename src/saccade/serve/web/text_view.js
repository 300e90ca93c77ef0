// A text split into elements for sentences and words: sentences can be selected, words can be highlighted.
import { make } from "./view/dom.js";

// Words are separated by what Python counts as white space, because the service's word alignments use that.
const WORDS = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;

export const wordsOf = (text) => text.match(WORDS) ?? [];

export class TextView {
  #sentences = [];
  #begins = [];

  constructor(element) { this.element = element; }

  get text() { return this.element.textContent; }
  get sentences() { return this.#sentences; }

  // `sentences` occur in `text` in this order, with only white space between them.
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

  replaceSentence(index, sentence) { this.#sentences[index].replaceChildren(...wordNodes(sentence)); }

  selectSentence(selected) {
    this.#sentences.forEach((span, index) => span.classList.toggle("selected", index === selected));
  }

  // The index of the sentence at a text offset; the white space after a sentence belongs to it.
  sentenceAt(offset) { return Math.max(0, this.#begins.findLastIndex((begin) => begin <= offset)); }

  // The sentence index and word index of a word's element; undefined for any other element.
  wordAt(element) {
    const sentence = this.#sentences.indexOf(element.parentElement);
    return sentence < 0 ? undefined : { sentence, word: [...element.parentElement.children].indexOf(element) };
  }

  highlight(sentence, words, className) {
    for (const word of words) this.#sentences[sentence].children[word]?.classList.add(className);
  }

  clearHighlights() {
    for (const word of this.element.querySelectorAll(".pointed, .linked")) word.classList.remove("pointed", "linked");
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
