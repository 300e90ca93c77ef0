// The viewer: what every attention looks at, for some sentences. One component with several homes.
import {
  FIRST_CHOICE, KINDS, LEVELS, VIEWS, choiceInAddress, keepInAddress, kindsOf, layerTitles, levelsOf, ofKind, settled,
} from "./choice.js";
import { drawScale, paletteAt } from "./colours.js";
import { copyButtons } from "./copying.js";
import { isolated, make } from "./dom.js";
import { heatMap } from "./heat_map.js";
import { lineView } from "./line_view.js";
import { multiples } from "./multiples.js";
import { picker, toggle } from "./pickers.js";
import { heatMapPicture, linesPicture } from "./pictures.js";
import { readout } from "./readout.js";
import { sentenceLine } from "./sentence_line.js";
import { JOINS, matrixOf } from "./weights.js";

const LONG = 40; // pieces, from which sentences are set smaller

// Show `data` (made by `saccade.view.page.shown`) inside an element. `address`: whether the choice is kept in the
// page's address. Returns `show(data)`, which shows other sentences with the choice kept as far as it exists there.
export function attentionView(element, data, { address = true } = {}) {
  const viewer = new Viewer(element, data, address);
  return { show: (others) => viewer.show(others) };
}

class Viewer {
  constructor(element, data, address) {
    Object.assign(this, { element, data, address, asked: address ? choiceInAddress() : FIRST_CHOICE });
    this.build();
    this.listen();
    this.show(data);
  }

  // ---- Its parts ----
  build() {
    this.sentences = make("select");
    this.sentencePicker = make("label", { className: "sentences" },
      make("span", { className: "caption" }, "Sentence"), this.sentences);
    this.pickers = {
      view: picker("Show as", (view) => this.choose({ view })),
      kind: picker("Attention", (kind) => this.chooseKind(kind)),
      map: picker("Layer", (map) => this.choose({ map })),
      head: picker("Head", (head) => this.choose({ head })),
      level: picker("Text as", (level) => this.choose({ level })),
    };
    this.numbers = toggle("Numbers", (numbers) => this.choose({ numbers }));
    this.copy = copyButtons(() => this.picture());
    this.columns = sentenceLine("column");
    this.rows = sentenceLine("row");
    this.text = make("section", { className: "text", ariaLabel: "Sentences" }, this.columns.element, this.rows.element);
    this.readout = make("output", { className: "readout", ariaLive: "polite" });
    this.scale = make("div", { className: "scale", ariaHidden: "true" });
    this.stage = make("section", { className: "stage", ariaLabel: "Attention" });
    this.name = make("code", { className: "name" });
    this.multiples = multiples((map, head) => this.choose({ map, head }));
    this.nothing = make("p", { className: "none" }, "There is no attention to show.");
    const controls = Object.values(this.pickers).map((each) => each.element);
    this.everything = make("div", {},
      make("section", { className: "controls", ariaLabel: "What to show" }, ...controls, this.numbers.element),
      this.text,
      make("div", { className: "below" },
        make("div", { className: "large" },
          make("div", { className: "above" }, this.readout, this.scale), this.stage,
          make("div", { className: "under" }, this.copy.element, this.name)),
        this.multiples.element));
    this.element.classList.add("attention");
    this.element.replaceChildren(this.sentencePicker, this.nothing, this.everything);
  }

  listen() {
    this.sentences.addEventListener("change", () => this.choose({ sentence: Number(this.sentences.value) }));
    for (const area of [this.columns.element, this.rows.element, this.stage]) {
      area.addEventListener("pointerover", (event) => this.pointAt(event.target));
      area.addEventListener("pointerleave", () => this.rest());
    }
    this.stage.addEventListener("focusin", (event) => this.pointAt(event.target));
    this.stage.addEventListener("focusout", () => this.point());
    // Also when it comes into sight. In the next frame, because to fit is to change sizes once more.
    new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    if (this.address) window.addEventListener("hashchange", () => { this.asked = choiceInAddress(); this.draw(); });
  }

  // ---- Choosing ----
  show(data) {
    this.data = data;
    this.sentences.replaceChildren(...data.sentences.map(({ source, target }, index) =>
      make("option", { value: String(index) }, `${index + 1}. ${isolated(source)} → ${isolated(target)}`)));
    this.sentencePicker.hidden = data.sentences.length < 2;
    this.draw();
  }

  choose(change) {
    this.asked = { ...this.choice, ...change };
    this.draw();
    if (this.address) keepInAddress(this.choice);
  }

  // The same layer of another kind, where there is one.
  chooseKind(kind) {
    const others = ofKind(this.maps, kind);
    const layer = ofKind(this.maps, this.map.kind).indexOf(this.map);
    this.choose({ map: (others[layer] ?? others.at(-1)).name });
  }

  // ---- Drawing ----
  draw() {
    Object.assign(this, { map: undefined }, settled(this.data, this.asked));
    this.everything.hidden = !this.map;
    this.nothing.hidden = Boolean(this.map);
    this.sentences.value = String(this.choice.sentence);
    if (!this.map) return;
    this.matrix = matrixOf(this.map, this.choice.head, this.data.scale);
    this.palette = paletteAt(this.element);
    this.drawControls();
    const long = Math.max(this.map.columns.labels.length, this.map.rows.labels.length) > LONG;
    this.columns.show(KINDS[this.map.kind].columns, this.map.columns, long);
    this.rows.show(KINDS[this.map.kind].rows, this.map.rows, long);
    drawScale(this.scale, this.palette);
    this.multiples.show(ofKind(this.maps, this.map.kind), this.data.scale, this.choice, this.palette);
    this.drawing = this.choice.view === "map"
      ? heatMap(this.map, this.matrix, this.palette, this.choice.numbers)
      : lineView(this.map, this.matrix, this.palette);
    this.copy.forget();
    this.stage.replaceChildren(this.drawing.element);
    this.name.textContent = this.map.name;
    this.fit();
    this.point();
  }

  drawControls() {
    const { view, kind, map, head, level } = this.pickers;
    view.offer(Object.entries(VIEWS), this.choice.view);
    kind.offer(kindsOf(this.maps).map((each) => [each, KINDS[each].title]), this.map.kind);
    const peers = ofKind(this.maps, this.map.kind);
    const titles = layerTitles(peers);
    map.offer(peers.map((peer, i) => [peer.name, titles[i]]), this.map.name);
    const heads = this.map.weights.map((_, each) => [String(each), String(each)]);
    const joins = Object.entries(JOINS).map(([each, { title }]) => [each, title]);
    head.offer(heads.length > 1 ? [...joins, ...heads] : heads, this.choice.head);
    level.offer(levelsOf(this.sentence).map((each) => [each, LEVELS[each]]), this.choice.level);
    this.numbers.show(this.choice.numbers);
    // Lines have no scale, and their words stand beside them already.
    for (const part of [this.numbers.element, this.scale, this.text]) part.hidden = this.choice.view !== "map";
  }

  // What is shown, for a paper.
  picture() {
    const { head, view, numbers } = this.choice;
    const heads = Object.hasOwn(JOINS, head) ? `${JOINS[head].title} of heads` : `head ${head}`;
    const title = `${this.map.name}, ${heads.toLowerCase()}: ${this.sentence.source} → ${this.sentence.target}`;
    const picture = view === "map"
      ? heatMapPicture(this.map, this.matrix, paletteAt(this.element, "--light-ramp"), numbers)
      : linesPicture(this.map, this.matrix);
    return { title, ...picture };
  }

  fit() {
    if (!this.map) return;
    for (const part of [this.columns, this.rows, this.drawing]) part.fit();
  }

  // ---- Pointing at things ----
  // Either index may be missing: a row alone shows where its word looks, a column alone who looks at its word.
  point(row, column) {
    const across = this.matrix[row];
    const down = across || column === undefined ? undefined : this.matrix.map((weights) => weights[column]);
    this.columns.shine(column, across, this.palette);
    this.rows.shine(row, down, this.palette);
    this.drawing.shine(row, column);
    this.readout.classList.toggle("idle", row === undefined && column === undefined);
    this.readout.replaceChildren(...readout(this.map, this.matrix, row, column));
  }

  // The gaps between places point at nothing new, so the readout does not flicker.
  pointAt(element) {
    const pointed = element.closest("[data-row], [data-column]");
    if (pointed) this.point(...[pointed.dataset.row, pointed.dataset.column].map((index) => index && Number(index)));
  }

  // When the mouse goes away, what the keyboard points at is shown again.
  rest() {
    this.point();
    if (this.stage.contains(document.activeElement)) this.pointAt(document.activeElement);
  }
}
