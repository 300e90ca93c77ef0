// The page: the text on the left is translated on the right while the user types.
import { Alternatives } from "./alternatives.js";
import { storeKey, storedKey } from "./api_key.js";
import { AttentionPanel } from "./attention_panel.js";
import { copyText } from "./clipboard.js";
import {
  AUTO, examplesOf, modelOptions, nameOf, reverseOf, sourceOptions, targetOptions, validSelection,
} from "./languages.js";
import { syncScrolling } from "./scrolling.js";
import { LatestRequest, ServiceError, pause, requestJson } from "./service.js";
import { SourceField } from "./source_field.js";
import { showRetry, showStatus } from "./status.js";
import { TranslationView } from "./translation_view.js";
import { readState, writeState } from "./url_state.js";
import { make } from "./view/dom.js";

const TYPING_PAUSE = 250; // milliseconds without a keystroke before the text is sent
const ALTERNATIVES = 3; // requested for each sentence
const MAX_ANNOUNCED = 300; // characters; screen readers announce a longer translation only by its number of sentences

const byId = (id) => document.getElementById(id);

class Page {
  constructor(models, settings) {
    Object.assign(this, { models, settings, requests: new LatestRequest() });
    Object.assign(this, { response: undefined, selected: 0, textInUrl: false });
    this.field = new SourceField(byId("text"), byId("mirror"), {
      onChange: () => this.textChanged(),
      onSelect: (sentence) => { if (this.response && sentence !== this.selected) this.selectSentence(sentence); },
      onPoint: (word) => this.highlightLinks(0, word),
    });
    this.translation = new TranslationView(byId("translation"), {
      onSelect: (sentence) => this.selectSentence(sentence),
      onPoint: (word) => this.highlightLinks(1, word),
    });
    this.alternatives = new Alternatives(byId("alternatives"), (rank) => this.showOutput(rank));
    const fetchAttention = (pair, signal) => this.fetchAttention(pair, signal);
    this.attention = new AttentionPanel(byId("attention"), fetchAttention, () => this.saveState());
    byId("key-form").hidden = !settings.keyRequired;
    byId("key").value = storedKey();
    this.listen();
    this.restore();
  }

  listen() {
    for (const id of ["source", "target", "model"]) byId(id).addEventListener("change", () => this.languagesChanged());
    byId("swap").addEventListener("click", () => this.swap());
    byId("clear").addEventListener("click", () => this.field.clear());
    byId("copy").addEventListener("click", () => this.copyTranslation());
    byId("link").addEventListener("click", () => this.copyLink());
    byId("key").addEventListener("input", () => { storeKey(byId("key").value); this.textChanged(); });
    byId("key-form").addEventListener("submit", (event) => { event.preventDefault(); this.translate(); });
    byId("text").addEventListener("keydown", (event) => this.keyPressed(event));
    window.addEventListener("hashchange", () => this.restore());
    window.addEventListener("resize", () => this.translation.updateTabStop());
    syncScrolling(byId("text").parentElement, byId("translation").parentElement);
  }

  keyPressed(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") this.field.clear();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.translate();
  }

  // ---- Languages ----
  // Restore the state from the URL.
  restore() {
    const state = readState();
    this.selection = validSelection(this.models, state);
    this.textInUrl = state.text !== undefined;
    if (this.textInUrl) this.field.text = state.text;
    byId("attention").open = state.attention === "shown";
    this.showLanguages();
    this.translate();
  }

  languagesChanged() {
    const [source, target, model] = ["source", "target", "model"].map((id) => byId(id).value);
    this.selection = validSelection(this.models, { source, target, model });
    this.showLanguages();
    this.saveState();
    this.translate();
  }

  showLanguages() {
    setOptions(byId("source"), sourceOptions(this.models), this.selection.source);
    setOptions(byId("target"), targetOptions(this.models, this.selection.source), this.selection.target);
    setOptions(byId("model"), modelOptions(this.models, this.selection), this.selection.model);
    byId("text").lang = this.selection.source === AUTO ? "" : this.selection.source;
    this.updateSwap();
    const examples = examplesOf(this.models, this.selection).map((text) => make("li", {}, this.exampleButton(text)));
    byId("examples").hidden = !examples.length;
    byId("examples").querySelector("ul").replaceChildren(...examples);
  }

  exampleButton(text) {
    const button = make("button", { type: "button", className: "quiet", dir: "auto" }, text);
    button.addEventListener("click", () => this.setText(text));
    return button;
  }

  // The language pair. If it depends on the text, that of the last response.
  get pair() { return this.selection.model ? this.selection : this.response ?? this.selection; }

  updateSwap() {
    const reverse = reverseOf(this.models, this.pair);
    byId("swap").hidden = !reverse;
    byId("arrow").hidden = Boolean(reverse);
  }

  swap() {
    const text = this.translation.text;
    this.selection = reverseOf(this.models, this.pair);
    this.showLanguages();
    this.setText(text || this.field.text);
  }

  setText(text) {
    this.field.text = text;
    this.textInUrl = false;
    this.saveState();
    this.translate();
  }

  saveState() {
    const text = this.textInUrl ? this.field.text : "";
    writeState({ ...this.selection, attention: byId("attention").open ? "shown" : "", text });
  }

  // ---- Translating ----
  async textChanged() {
    const signal = this.requests.begin();
    if (this.textInUrl) { this.textInUrl = false; this.saveState(); }
    this.markStale();
    if (!this.field.text.trim()) return this.translate();
    try { await pause(TYPING_PAUSE, signal); } catch { return; }
    this.translate();
  }

  async translate() {
    const signal = this.requests.begin();
    const { text } = this.field;
    this.markStale();
    if (!this.canBeSent(text)) return;
    byId("busy").hidden = false;
    try {
      this.show(text, await this.request({ ...this.selection, text, alignments: true }, signal));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ServiceError)) throw error;
      this.showError(error.message);
    }
    byId("busy").hidden = true;
  }

  request(fields, signal) {
    const alternatives = Math.min(ALTERNATIVES, this.settings.alternatives);
    const body = Object.fromEntries(Object.entries({ ...fields, alternatives }).filter(([, value]) => value !== ""));
    return requestJson("/v1/translate", { body, key: byId("key").value, signal, onWait: showRetry });
  }

  showError(text) { showStatus(text, { isError: true }); }

  // Whether to send a text. If not, show why.
  canBeSent(text) {
    const excess = [...text].length - this.settings.charLimit;
    if (!text.trim()) this.show(text, { target: "", translations: [{ text: "", sentences: [] }] });
    else if (excess > 0) this.showError(`The text is too long by ${excess.toLocaleString("en")} characters.`);
    else if (this.settings.keyRequired && !byId("key").value) this.showError("Enter your API key to translate.");
    else return true;
    return false;
  }

  // Mark the translation as outdated, because the text has changed, and update the character counter.
  markStale() {
    const [length, limit] = [[...this.field.text].length, this.settings.charLimit];
    byId("counter").textContent = `${length.toLocaleString("en")} / ${limit.toLocaleString("en")}`;
    byId("counter").classList.toggle("error", length > limit);
    byId("clear").hidden = !length;
    byId("busy").hidden = true;
    byId("translation").classList.toggle("stale", Boolean(this.translation.text));
    this.response = undefined;
    this.highlightLinks(0);
  }

  show(text, response) {
    const [translated] = response.translations;
    this.response = response;
    this.field.view.show(text, translated.sentences.map(({ source }) => source));
    this.translation.show(translated, response.target);
    byId("translation").classList.remove("stale");
    for (const id of ["copy", "link"]) byId(id).hidden = !translated.text;
    this.updateSwap();
    this.selectSentence(this.field.sentence);
    const isShort = translated.text.length < MAX_ANNOUNCED;
    const announce = isShort ? translated.text : `Translated ${translated.sentences.length} sentences.`;
    showStatus(this.detectedText(response), { announce });
  }

  // The languages and the model, if the service chose them.
  detectedText({ detected, source, target, model }) {
    if (this.selection.model || !model) return "";
    const [from, to] = [source, target].map((code) => nameOf(this.models, code));
    return `${from}${detected ? ` (${detected.confidence} % confidence)` : ""} to ${to} with ${model}`;
  }

  // ---- One sentence ----
  selectSentence(sentence) {
    this.selected = sentence;
    this.translation.selectSentence(sentence);
    if (this.translation.hasSeveralSentences) this.field.view.selectSentence(sentence);
    this.alternatives.show(this.translation.outputsOf(sentence), this.translation.language);
    this.updateAttention();
  }

  showOutput(rank) {
    this.translation.showOutput(this.selected, rank);
    this.alternatives.update(this.translation.outputsOf(this.selected), this.translation.language);
    this.updateAttention();
  }

  updateAttention() {
    const sentence = this.response?.translations[0].sentences[this.selected];
    const output = this.translation.shownOutput(this.selected);
    this.attention.show(sentence && { text: sentence.source, translation: output.text });
  }

  // Request the sentence again with attention. The same search gives the same outputs.
  async fetchAttention({ text, translation }, signal) {
    const { model, source, target } = this.response;
    const response = await this.request({ model, source, target, text, attention: true }, signal);
    const [best] = response.translations[0].sentences;
    return ([best, ...best.alternatives].find((output) => output.text === translation) ?? best).attention;
  }

  // Highlight a word and the words of the other side that are aligned to it. Side 0 is the source.
  highlightLinks(side, pointed) {
    const views = [this.field.view, this.translation.view];
    for (const view of views) view.clearHighlights();
    if (!pointed || !this.response) return;
    const { sentence, word } = pointed;
    const links = (this.translation.shownOutput(sentence).alignment ?? []).filter((link) => link[side] === word);
    views[side].highlight(sentence, [word], "pointed");
    views[1 - side].highlight(sentence, links.map((link) => link[1 - side]), "linked");
  }

  // ---- Copying ----
  async copyTranslation() {
    showStatus((await copyText(this.translation.text)) ? "Copied." : "The browser does not allow copying.");
  }

  async copyLink() {
    this.textInUrl = true;
    this.saveState();
    showStatus((await copyText(location.href)) ? "The link is copied." : "The link is in the address bar.");
  }
}

function setOptions(select, options, value) {
  select.replaceChildren(...options.map(([option, title]) => make("option", { value: option }, title)));
  select.value = value;
  select.disabled = options.length < 2;
}

async function start() {
  const { signal } = new AbortController();
  const addresses = ["/v1/models", "/frontend/settings"];
  const requests = addresses.map((address) => requestJson(address, { signal, onWait: showRetry }));
  const [models, settings] = await Promise.all(requests);
  showStatus("");
  return new Page(models, settings);
}

start();
