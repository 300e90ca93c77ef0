// The translation. Its sentences can be selected, and each can be replaced by one of its alternatives.
import { TextView } from "./text_view.js";
import { clamp, enableArrowKeys } from "./view/arrow_keys.js";

export class TranslationView {
  #outputs = []; // of each sentence, best first
  #ranks = []; // of the output shown for each sentence

  // `onSelect(sentence)`: the user clicked a sentence or reached it with the keyboard; `onPoint(word)`: the pointer is
  // on a word, or on none.
  constructor(element, { onSelect, onPoint }) {
    Object.assign(this, { element, view: new TextView(element) });
    element.addEventListener("focusin", (event) => onSelect(this.view.sentences.indexOf(event.target)));
    element.addEventListener("pointerover", (event) => {
      const word = this.view.wordAt(event.target);
      if (word) onPoint(word);
    });
    element.addEventListener("pointerleave", () => onPoint());
    enableArrowKeys(element, (sentence, down, right) => {
      const { sentences } = this.view;
      return sentences[clamp(sentences.indexOf(sentence) + down + right, sentences.length)];
    });
  }

  get text() { return this.view.text; }
  get language() { return this.element.lang; }
  get hasSeveralSentences() { return this.view.sentences.length > 1; }

  show({ text, sentences }, language) {
    this.#outputs = sentences.map(({ alternatives, ...best }) => [best, ...alternatives]);
    this.#ranks = sentences.map(() => 0);
    this.element.lang = language;
    this.view.show(text, sentences.map((sentence) => sentence.text));
    this.#setRoles();
    this.updateTabStop();
  }

  // All outputs of a sentence, and the rank of the one that is shown.
  outputsOf(sentence) { return { outputs: this.#outputs[sentence] ?? [], rank: this.#ranks[sentence] }; }
  shownOutput(sentence) { return this.#outputs[sentence]?.[this.#ranks[sentence]]; }

  showOutput(sentence, rank) {
    this.#ranks[sentence] = rank;
    this.view.replaceSentence(sentence, this.shownOutput(sentence).text);
    this.updateTabStop();
  }

  selectSentence(selected) {
    if (!this.hasSeveralSentences) return;
    this.view.selectSentence(selected);
    this.view.sentences.forEach((span, index) => {
      span.ariaChecked = String(index === selected);
      span.tabIndex = index === selected ? 0 : -1;
    });
  }

  // Several sentences are a radio group: the tab key reaches it, and the arrow keys move inside it.
  #setRoles() {
    const several = this.hasSeveralSentences;
    this.element.role = several ? "radiogroup" : "group";
    this.element.ariaLabel = several ? "Translation, sentence by sentence" : "Translation";
    if (several) for (const span of this.view.sentences) span.role = "radio";
  }

  // The tab key must reach an element that scrolls, so that the keyboard can scroll it.
  updateTabStop() {
    const scroll = this.element.parentElement;
    if (scroll.scrollHeight > scroll.clientHeight) scroll.tabIndex = 0;
    else scroll.removeAttribute("tabindex");
  }
}
