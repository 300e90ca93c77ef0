// The attention viewer, which the offline page, the report and the served page share.
import { drawColorScale, paletteOf } from "./colors.js";
import { picker, toggle } from "./controls.js";
import { copyButtons } from "./copy_buttons.js";
import { isolated, make } from "./dom.js";
import { headGrid } from "./head_grid.js";
import { heatMap } from "./heat_map.js";
import { heatMapImage, lineViewImage } from "./images.js";
import { lineView } from "./line_view.js";
import { readout } from "./readout.js";
import {
  DEFAULT_SELECTION, KINDS, LEVELS, VIEWS, kindsOf, layerTitles, levelsOf, ofKind, resolveSelection, saveToUrl,
  selectionFromUrl,
} from "./selection.js";
import { sentenceLine } from "./sentence_line.js";
import { HEAD_REDUCTIONS, weightMatrix } from "./weights.js";

const LONG_SENTENCE = 40; // with more pieces, sentences are set in smaller type

// Show `data` (from `saccade.view.page.viewer_data`) inside an element. With `storeInUrl`, the selection is stored in
// the fragment of the page's URL. Returns `{ show(data) }`, which shows other sentences and keeps the selection if it
// exists there.
export function attentionView(element, data, { storeInUrl = true } = {}) {
  const viewer = new Viewer(element, data, storeInUrl);
  return { show: (newData) => viewer.show(newData) };
}

class Viewer {
  constructor(element, data, storeInUrl) {
    const requested = storeInUrl ? selectionFromUrl() : DEFAULT_SELECTION;
    Object.assign(this, { element, data, storeInUrl, requested });
    this.build();
    this.listen();
    this.show(data);
  }

  // ---- Elements ----
  build() {
    this.sentences = make("select");
    this.sentencePicker = make("label", { className: "sentences" },
      make("span", { className: "caption" }, "Sentence"), this.sentences);
    this.pickers = {
      view: picker("Show as", (view) => this.select({ view })),
      kind: picker("Attention", (kind) => this.selectKind(kind)),
      map: picker("Layer", (map) => this.select({ map })),
      head: picker("Head", (head) => this.select({ head })),
      level: picker("Text as", (level) => this.select({ level })),
    };
    this.numbers = toggle("Numbers", (numbers) => this.select({ numbers }));
    this.copy = copyButtons(() => this.image());
    this.columns = sentenceLine("column");
    this.rows = sentenceLine("row");
    this.text = make("section", { className: "text", ariaLabel: "Sentences" }, this.columns.element, this.rows.element);
    this.readout = make("output", { className: "readout", ariaLive: "polite" });
    this.colorScale = make("div", { className: "scale", ariaHidden: "true" });
    this.stage = make("section", { className: "stage", ariaLabel: "Attention" });
    this.name = make("code", { className: "name" });
    this.headGrid = headGrid((map, head) => this.select({ map, head }));
    this.emptyMessage = make("p", { className: "none" }, "There is no attention to show.");
    const controls = Object.values(this.pickers).map((control) => control.element);
    this.content = make("div", {},
      make("section", { className: "controls", ariaLabel: "What to show" }, ...controls, this.numbers.element),
      this.text,
      make("div", { className: "panels" },
        make("div", {},
          make("div", { className: "status" }, this.readout, this.colorScale), this.stage,
          make("div", { className: "footer" }, this.copy.element, this.name)),
        this.headGrid.element));
    this.element.classList.add("attention");
    this.element.replaceChildren(this.sentencePicker, this.emptyMessage, this.content);
  }

  listen() {
    this.sentences.addEventListener("change", () => this.select({ sentence: Number(this.sentences.value) }));
    for (const area of [this.columns.element, this.rows.element, this.stage]) {
      area.addEventListener("pointerover", (event) => this.highlightElement(event.target));
      area.addEventListener("pointerleave", () => this.highlightFocused());
    }
    this.stage.addEventListener("focusin", (event) => this.highlightElement(event.target));
    this.stage.addEventListener("focusout", () => this.highlight());
    // Also called when the element becomes visible. `fit` changes sizes itself, so it waits for the next frame.
    new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    if (!this.storeInUrl) return;
    window.addEventListener("hashchange", () => { this.requested = selectionFromUrl(); this.draw(); });
  }

  // ---- Selection ----
  show(data) {
    this.data = data;
    this.sentences.replaceChildren(...data.sentences.map(({ source, target }, index) =>
      make("option", { value: String(index) }, `${index + 1}. ${isolated(source)} → ${isolated(target)}`)));
    this.sentencePicker.hidden = data.sentences.length < 2;
    this.draw();
  }

  select(changes) {
    this.requested = { ...this.selection, ...changes };
    this.draw();
    if (this.storeInUrl) saveToUrl(this.selection);
  }

  // Select the same layer of another kind, or its last layer if it has fewer.
  selectKind(kind) {
    const maps = ofKind(this.maps, kind);
    const layer = ofKind(this.maps, this.map.kind).indexOf(this.map);
    this.select({ map: (maps[layer] ?? maps.at(-1)).name });
  }

  // ---- Drawing ----
  draw() {
    Object.assign(this, { map: undefined }, resolveSelection(this.data, this.requested));
    this.content.hidden = !this.map;
    this.emptyMessage.hidden = Boolean(this.map);
    this.sentences.value = String(this.selection.sentence);
    if (!this.map) return;
    this.matrix = weightMatrix(this.map, this.selection.head, this.data.scale);
    this.palette = paletteOf(this.element);
    this.drawControls();
    const long = Math.max(this.map.columns.labels.length, this.map.rows.labels.length) > LONG_SENTENCE;
    this.columns.show(KINDS[this.map.kind].columns, this.map.columns, long);
    this.rows.show(KINDS[this.map.kind].rows, this.map.rows, long);
    drawColorScale(this.colorScale, this.palette);
    this.headGrid.show(ofKind(this.maps, this.map.kind), this.data.scale, this.selection, this.palette);
    this.view = this.selection.view === "heatmap"
      ? heatMap(this.map, this.matrix, this.palette, this.selection.numbers)
      : lineView(this.map, this.matrix, this.palette);
    this.copy.clearStatus();
    this.stage.replaceChildren(this.view.element);
    this.name.textContent = this.map.name;
    this.fit();
    this.highlight();
  }

  drawControls() {
    const { view, kind, map, head, level } = this.pickers;
    view.show(Object.entries(VIEWS), this.selection.view);
    kind.show(kindsOf(this.maps).map((key) => [key, KINDS[key].title]), this.map.kind);
    const layers = ofKind(this.maps, this.map.kind);
    const titles = layerTitles(layers);
    map.show(layers.map((layer, i) => [layer.name, titles[i]]), this.map.name);
    const heads = this.map.weights.map((_, number) => [String(number), String(number)]);
    const reductions = Object.entries(HEAD_REDUCTIONS).map(([key, { title }]) => [key, title]);
    head.show(heads.length > 1 ? [...reductions, ...heads] : heads, this.selection.head);
    level.show(levelsOf(this.sentence).map((key) => [key, LEVELS[key]]), this.selection.level);
    this.numbers.show(this.selection.numbers);
    // The line view shows the words itself and uses no color scale.
    const onlyWithHeatMap = [this.numbers.element, this.colorScale, this.text];
    for (const element of onlyWithHeatMap) element.hidden = this.selection.view !== "heatmap";
  }

  // The selected map as an image for export.
  image() {
    const { head, view, numbers } = this.selection;
    const isReduction = Object.hasOwn(HEAD_REDUCTIONS, head);
    const heads = isReduction ? `${HEAD_REDUCTIONS[head].title} of heads` : `head ${head}`;
    const title = `${this.map.name}, ${heads.toLowerCase()}: ${this.sentence.source} → ${this.sentence.target}`;
    const image = view === "heatmap"
      ? heatMapImage(this.map, this.matrix, paletteOf(this.element, "--light-ramp"), numbers)
      : lineViewImage(this.map, this.matrix);
    return { title, ...image };
  }

  fit() {
    if (!this.map) return;
    for (const component of [this.columns, this.rows, this.view]) component.fit();
  }

  // ---- Highlighting ----
  // With both indices: one weight. With a row only: the weights of its keys. With a column only: those of its queries.
  highlight(row, column) {
    const rowWeights = this.matrix[row];
    const onlyColumn = !rowWeights && column !== undefined;
    const columnWeights = onlyColumn ? this.matrix.map((weights) => weights[column]) : undefined;
    this.columns.highlight(column, rowWeights, this.palette);
    this.rows.highlight(row, columnWeights, this.palette);
    this.view.highlight(row, column);
    this.readout.classList.toggle("idle", row === undefined && column === undefined);
    this.readout.replaceChildren(...readout(this.map, this.matrix, row, column));
  }

  // Gaps between cells have no indices; the highlight stays there, so that the readout does not flicker.
  highlightElement(element) {
    const indexed = element.closest("[data-row], [data-column]");
    if (!indexed) return;
    this.highlight(...[indexed.dataset.row, indexed.dataset.column].map((index) => index && Number(index)));
  }

  // When the pointer leaves, highlight the focused element again.
  highlightFocused() {
    this.highlight();
    if (this.stage.contains(document.activeElement)) this.highlightElement(document.activeElement);
  }
}
