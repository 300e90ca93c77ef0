// The text to translate. Behind the field lies the same text as a sheet, which gives it its height and its light.
import { Sheet } from "./sheet.js";

export class SourceField {
  // `changed()`: someone typed; `visited(sentence)`: the caret went there; `pointed(place)`: at a word, or at none.
  constructor(field, mirror, { changed, visited, pointed }) {
    Object.assign(this, { field, sheet: new Sheet(mirror) });
    field.addEventListener("input", (event) => {
      this.sheet.show(this.text);
      if (!event.isComposing) changed();
    });
    field.addEventListener("compositionend", changed);
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === field) visited(this.sentence);
    });
    field.addEventListener("pointermove", (event) => {
      const place = this.#placeUnder(event);
      if (place) pointed(place);
    });
    field.addEventListener("pointerleave", () => pointed());
    this.sheet.show(this.text);
  }

  get text() { return this.field.value.toWellFormed(); }

  set text(text) {
    this.field.value = text;
    this.sheet.show(this.text);
  }

  // The sentence that is being written.
  get sentence() { return this.sheet.sentenceAt(this.field.selectionStart); }

  // In a way that the browser can undo.
  clear() {
    this.field.focus();
    this.field.select();
    document.execCommand("delete");
  }

  #placeUnder(event) {
    const below = document.elementsFromPoint(event.clientX, event.clientY);
    return below.map((element) => this.sheet.placeOf(element)).find(Boolean);
  }
}
