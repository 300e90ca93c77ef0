// The page: what is written on the left is translated on the right while it is being written.
import { keepInAddress, stateInAddress } from "./address.js";
import { Alternatives } from "./alternatives.js";
import { AttentionPanel } from "./attention_panel.js";
import { copied } from "./clipboard.js";
import { keepKey, keptKey } from "./key.js";
import { AUTO, examplesOf, modelsOf, nameOf, reverseOf, settledChoice, sourcesOf, targetsOf } from "./languages.js";
import { scrollTogether } from "./scrolling.js";
import { Latest, BuildError, asked, pause } from "./service.js";
import { SourceField } from "./source_field.js";
import { tell, tellWaiting } from "./status.js";
import { Translation } from "./translation.js";
import { make } from "./view/dom.js";

const PAUSE = 250; // milliseconds without a key before the text is sent
const WAYS = 3; // alternatives to ask for
const SHORT = 300; // characters of a translation that is read out as a whole

const part = (id) => document.getElementById(id);

class Page {
  constructor(models, settings) {
    Object.assign(this, { models, settings, requests: new Latest(), answer: undefined, chosen: 0, linked: false });
    this.field = new SourceField(part("text"), part("mirror"), {
      changed: () => this.changed(),
      visited: (sentence) => { if (this.answer && sentence !== this.chosen) this.choose(sentence); },
      pointed: (place) => this.point(0, place),
    });
    this.translation = new Translation(part("translation"), {
      visited: (sentence) => this.choose(sentence),
      pointed: (place) => this.point(1, place),
    });
    this.alternatives = new Alternatives(part("alternatives"), (rank) => this.put(rank));
    this.attention = new AttentionPanel(part("attention"), (...wish) => this.lookInside(...wish), () => this.keep());
    part("key-choice").hidden = !settings.keyRequired;
    part("key").value = keptKey();
    this.listen();
    this.restore();
  }

  listen() {
    for (const id of ["source", "target", "model"]) part(id).addEventListener("change", () => this.chooseLanguages());
    part("swap").addEventListener("click", () => this.swap());
    part("clear").addEventListener("click", () => this.field.clear());
    part("copy").addEventListener("click", () => this.copy());
    part("link").addEventListener("click", () => this.link());
    part("key").addEventListener("input", () => { keepKey(part("key").value); this.changed(); });
    part("key-choice").addEventListener("submit", (event) => { event.preventDefault(); this.translate(); });
    part("text").addEventListener("keydown", (event) => this.press(event));
    window.addEventListener("hashchange", () => this.restore());
    window.addEventListener("resize", () => this.translation.fit());
    scrollTogether(part("text").parentElement, part("translation").parentElement);
  }

  press(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") this.field.clear();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.translate();
  }

  // ---- Languages ----
  // As the address says.
  restore() {
    const asked = stateInAddress();
    this.choice = settledChoice(this.models, asked);
    this.linked = asked.text !== undefined;
    if (this.linked) this.field.text = asked.text;
    part("attention").open = asked.attention === "shown";
    this.showLanguages();
    this.translate();
  }

  chooseLanguages() {
    const [source, target, model] = ["source", "target", "model"].map((id) => part(id).value);
    this.choice = settledChoice(this.models, { source, target, model });
    this.showLanguages();
    this.keep();
    this.translate();
  }

  showLanguages() {
    offer(part("source"), sourcesOf(this.models), this.choice.source);
    offer(part("target"), targetsOf(this.models, this.choice.source), this.choice.target);
    offer(part("model"), modelsOf(this.models, this.choice), this.choice.model);
    part("text").lang = this.choice.source === AUTO ? "" : this.choice.source;
    this.showWayBack();
    const examples = examplesOf(this.models, this.choice).map((text) => make("li", {}, this.example(text)));
    part("examples").hidden = !examples.length;
    part("examples").querySelector("ul").replaceChildren(...examples);
  }

  example(text) {
    const button = make("button", { type: "button", className: "quiet", dir: "auto" }, text);
    button.addEventListener("click", () => this.write(text));
    return button;
  }

  // What is translated, or was last where it depends on the text.
  get pair() { return this.choice.model ? this.choice : this.answer ?? this.choice; }

  showWayBack() {
    const back = reverseOf(this.models, this.pair);
    part("swap").hidden = !back;
    part("arrow").hidden = Boolean(back);
  }

  swap() {
    const text = this.translation.text;
    this.choice = reverseOf(this.models, this.pair);
    this.showLanguages();
    this.write(text || this.field.text);
  }

  write(text) {
    this.field.text = text;
    this.linked = false;
    this.keep();
    this.translate();
  }

  keep() {
    const text = this.linked ? this.field.text : "";
    keepInAddress({ ...this.choice, attention: part("attention").open ? "shown" : "", text });
  }

  // ---- Translating ----
  async changed() {
    const signal = this.requests.begin();
    if (this.linked) { this.linked = false; this.keep(); }
    this.age();
    if (!this.field.text.trim()) return this.translate();
    try { await pause(PAUSE, signal); } catch { return; }
    this.translate();
  }

  async translate() {
    const signal = this.requests.begin();
    const { text } = this.field;
    this.age();
    if (!this.canBeSent(text)) return;
    part("busy").hidden = false;
    try {
      this.show(text, await this.ask({ ...this.choice, text, alignments: true }, signal));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof BuildError)) throw error;
      tell(error.message, { wrong: true });
    }
    part("busy").hidden = true;
  }

  ask(wish, signal) {
    const alternatives = Math.min(WAYS, this.settings.alternatives);
    const body = Object.fromEntries(Object.entries({ ...wish, alternatives }).filter(([, value]) => value !== ""));
    return asked("/v1/translate", { body, key: part("key").value, signal, waiting: tellWaiting });
  }

  canBeSent(text) {
    const over = [...text].length - this.settings.charLimit;
    if (!text.trim()) this.show(text, { target: "", translations: [{ text: "", sentences: [] }] });
    else if (over > 0) tell(`The text is too long by ${over.toLocaleString("en")} characters.`, { wrong: true });
    else if (this.settings.keyRequired && !part("key").value) tell("Enter your API key to translate.", { wrong: true });
    else return true;
    return false;
  }

  // The translation on the page is no longer that of the text.
  age() {
    const [length, most] = [[...this.field.text].length, this.settings.charLimit];
    part("counter").textContent = `${length.toLocaleString("en")} / ${most.toLocaleString("en")}`;
    part("counter").classList.toggle("wrong", length > most);
    part("clear").hidden = !length;
    part("busy").hidden = true;
    part("translation").classList.toggle("stale", Boolean(this.translation.text));
    this.answer = undefined;
    this.point(0);
  }

  show(text, answer) {
    const [translated] = answer.translations;
    this.answer = answer;
    this.field.sheet.show(text, translated.sentences.map(({ source }) => source));
    this.translation.show(translated, answer.target);
    part("translation").classList.remove("stale");
    for (const id of ["copy", "link"]) part(id).hidden = !translated.text;
    this.showWayBack();
    this.choose(this.field.sentence);
    const all = translated.text.length < SHORT;
    tell(this.found(answer), { aloud: all ? translated.text : `Translated ${translated.sentences.length} sentences.` });
  }

  // What was left to the service.
  found({ detected, source, target, model }) {
    if (this.choice.model || !model) return "";
    const [from, into] = [source, target].map((code) => nameOf(this.models, code));
    return `${from}${detected ? ` (${detected.confidence} % sure)` : ""} into ${into} by ${model}`;
  }

  // ---- One sentence ----
  choose(sentence) {
    this.chosen = sentence;
    this.translation.choose(sentence);
    if (this.translation.many) this.field.sheet.choose(sentence);
    this.alternatives.show(this.translation.waysOf(sentence), this.translation.language);
    this.look();
  }

  put(rank) {
    this.translation.put(this.chosen, rank);
    this.alternatives.mark(this.translation.waysOf(this.chosen), this.translation.language);
    this.look();
  }

  look() {
    const sentence = this.answer?.translations[0].sentences[this.chosen];
    this.attention.show(sentence && { text: sentence.source, into: this.translation.wayOf(this.chosen).text });
  }

  // The same search for the one sentence gives the same ways to say it.
  async lookInside({ text, into }, signal) {
    const { model, source, target } = this.answer;
    const answer = await this.ask({ model, source, target, text, attention: true }, signal);
    const [best] = answer.translations[0].sentences;
    return ([best, ...best.alternatives].find((way) => way.text === into) ?? best).attention;
  }

  // A word, and those of the other side that belong to it. Side 0 is the source.
  point(side, place) {
    const sheets = [this.field.sheet, this.translation.sheet];
    for (const sheet of sheets) sheet.rest();
    if (!place || !this.answer) return;
    const links = (this.translation.wayOf(place.sentence).links ?? []).filter((link) => link[side] === place.word);
    sheets[side].light(place.sentence, [place.word], "on");
    sheets[1 - side].light(place.sentence, links.map((link) => link[1 - side]), "linked");
  }

  // ---- Taking it away ----
  async copy() {
    tell((await copied(this.translation.text)) ? "Copied." : "This browser does not let the page copy.");
  }

  async link() {
    this.linked = true;
    this.keep();
    tell((await copied(location.href)) ? "The link is copied." : "The link stands in the address bar.");
  }
}

function offer(select, options, value) {
  select.replaceChildren(...options.map(([each, title]) => make("option", { value: each }, title)));
  select.value = value;
  select.disabled = options.length < 2;
}

async function start() {
  const { signal } = new AbortController();
  const facts = ["/v1/models", "/frontend/settings"].map((address) => asked(address, { signal, waiting: tellWaiting }));
  const [models, settings] = await Promise.all(facts);
  tell("");
  return new Page(models, settings);
}

start();
