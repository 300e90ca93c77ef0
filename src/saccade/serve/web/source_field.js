// The text field for the source. A copy of its text lies behind it, which sets its height and shows the highlights.
import { TextView } from "./text_view.js";

export class SourceField {
  // `onChange()`: the text changed; `onSelect(sentence)`: the caret moved; `onPoint(word)`: the pointer is on a word,
  // or on none.
  constructor(field, mirror, { onChange, onSelect, onPoint }) {
    Object.assign(this, { field, view: new TextView(mirror) });
    field.addEventListener("input", (event) => {
      this.view.show(this.text);
      if (!event.isComposing) onChange();
    });
    field.addEventListener("compositionend", onChange);
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === field) onSelect(this.sentence);
    });
    field.addEventListener("pointermove", (event) => {
      const word = this.#wordUnder(event);
      if (word) onPoint(word);
    });
    field.addEventListener("pointerleave", () => onPoint());
    this.view.show(this.text);
  }

  get text() { return this.field.value.toWellFormed(); }

  set text(text) {
    this.field.value = text;
    this.view.show(this.text);
  }

  // The sentence with the caret.
  get sentence() { return this.view.sentenceAt(this.field.selectionStart); }

  // Delete the text so that the browser's undo restores it.
  clear() {
    this.field.focus();
    this.field.select();
    document.execCommand("delete");
  }

  #wordUnder(event) {
    const elements = document.elementsFromPoint(event.clientX, event.clientY);
    return elements.map((element) => this.view.wordAt(element)).find(Boolean);
  }
}
