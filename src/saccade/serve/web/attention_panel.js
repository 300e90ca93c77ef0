// The attention of one sentence's translation, asked for while the panel is open and at no other time.
import { Latest, BuildError } from "./service.js";
import { attentionView } from "./view/attention.js";

export class AttentionPanel {
  #requests = new Latest();
  #wish;
  #viewer;

  // `ask(wish, signal)` gives what the viewer shows; `toggled()`: it was opened or closed.
  constructor(element, ask, toggled) {
    Object.assign(this, { element, ask, said: element.querySelector("p"), home: element.querySelector("div") });
    element.addEventListener("toggle", () => { toggled(); this.#look(); });
  }

  // Another translation, or none.
  show(wish) {
    this.#wish = wish;
    this.#look();
  }

  async #look() {
    const signal = this.#requests.begin();
    if (!this.element.open) return;
    if (!this.#wish) return this.#say("Translate something to see it.");
    try {
      const data = await this.ask(this.#wish, signal);
      this.#say("");
      if (this.#viewer) this.#viewer.show(data);
      else this.#viewer = attentionView(this.home, data, { address: false });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof BuildError)) throw error;
      this.#say(error.message);
    }
  }

  #say(text) {
    this.said.textContent = text;
    this.said.hidden = !text;
    this.home.hidden = Boolean(text);
  }
}
