// The attention weights of one translated sentence. They are requested only while the panel is open.
import { LatestRequest, ServiceError } from "./service.js";
import { attentionView } from "./view/attention.js";

export class AttentionPanel {
  #requests = new LatestRequest();
  #pair;
  #viewer;

  // `fetchAttention(pair, signal)` returns the viewer's data; `onToggle()`: the user opened or closed the panel.
  constructor(element, fetchAttention, onToggle) {
    const [message, viewer] = [element.querySelector("p"), element.querySelector("div")];
    Object.assign(this, { element, fetchAttention, message, viewerElement: viewer });
    element.addEventListener("toggle", () => { onToggle(); this.#update(); });
  }

  // Show another pair of source text and translation; undefined if there is none.
  show(pair) {
    this.#pair = pair;
    this.#update();
  }

  async #update() {
    const signal = this.#requests.begin();
    if (!this.element.open) return;
    if (!this.#pair) return this.#showMessage("Translate something to see its attention.");
    try {
      const data = await this.fetchAttention(this.#pair, signal);
      this.#showMessage("");
      if (this.#viewer) this.#viewer.show(data);
      else this.#viewer = attentionView(this.viewerElement, data, { storeInUrl: false });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ServiceError)) throw error;
      this.#showMessage(error.message);
    }
  }

  #showMessage(text) {
    this.message.textContent = text;
    this.message.hidden = !text;
    this.viewerElement.hidden = Boolean(text);
  }
}
