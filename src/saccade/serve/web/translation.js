// The translation: sentences to choose from, each in one of several ways to say it.
import { Sheet } from "./sheet.js";
import { clamp, walkable } from "./view/walking.js";

export class Translation {
  #ways = [];
  #ranks = [];

  // `visited(sentence)`: one was clicked or walked to; `pointed(place)`: at a word, or at none.
  constructor(element, { visited, pointed }) {
    Object.assign(this, { element, sheet: new Sheet(element) });
    element.addEventListener("focusin", (event) => visited(this.sheet.sentences.indexOf(event.target)));
    element.addEventListener("pointerover", (event) => {
      const place = this.sheet.placeOf(event.target);
      if (place) pointed(place);
    });
    element.addEventListener("pointerleave", () => pointed());
    walkable(element, (sentence, down, right) => {
      const { sentences } = this.sheet;
      return sentences[clamp(sentences.indexOf(sentence) + down + right, sentences.length)];
    });
  }

  get text() { return this.sheet.text; }
  get language() { return this.element.lang; }
  get many() { return this.sheet.sentences.length > 1; }

  show({ text, sentences }, language) {
    this.#ways = sentences.map(({ alternatives, ...best }) => [best, ...alternatives]);
    this.#ranks = sentences.map(() => 0);
    this.element.lang = language;
    this.sheet.show(text, sentences.map((sentence) => sentence.text));
    this.#offer();
    this.fit();
  }

  // All ways to say a sentence, and which of them stands in the text.
  waysOf(sentence) { return { ways: this.#ways[sentence] ?? [], rank: this.#ranks[sentence] }; }
  wayOf(sentence) { return this.#ways[sentence]?.[this.#ranks[sentence]]; }

  put(sentence, rank) {
    this.#ranks[sentence] = rank;
    this.sheet.put(sentence, this.wayOf(sentence).text);
    this.fit();
  }

  choose(sentence) {
    if (!this.many) return;
    this.sheet.choose(sentence);
    this.sheet.sentences.forEach((span, each) => {
      span.ariaChecked = String(each === sentence);
      span.tabIndex = each === sentence ? 0 : -1;
    });
  }

  // One sentence is text; several are a choice, which the tab key reaches and the arrow keys walk through.
  #offer() {
    this.element.role = this.many ? "radiogroup" : "group";
    this.element.ariaLabel = this.many ? "Translation, sentence by sentence" : "Translation";
    if (this.many) for (const span of this.sheet.sentences) span.role = "radio";
  }

  // What scrolls must be in reach of the keyboard.
  fit() {
    const scroll = this.element.parentElement;
    if (scroll.scrollHeight > scroll.clientHeight) scroll.tabIndex = 0;
    else scroll.removeAttribute("tabindex");
  }
}
