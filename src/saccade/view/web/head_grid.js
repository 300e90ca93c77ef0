// Thumbnails of all heads of all layers of one kind; a click selects one.
import { drawMatrix } from "./colors.js";
import { make } from "./dom.js";
import { KINDS, layerTitles } from "./selection.js";
import { weightMatrix } from "./weights.js";

// `onSelect(mapName, head)` is called after a click.
export function headGrid(onSelect) {
  const title = make("h2", { className: "caption" });
  const grid = make("div", { className: "grid" });
  const element = make("section", { className: "head-grid", ariaLabel: "All heads" }, title, grid);
  grid.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    onSelect(button.dataset.map, button.dataset.head);
    grid.querySelector("[aria-pressed='true']").focus();
  });

  // `maps`: all maps of one kind.
  function show(maps, scale, selection, palette) {
    const titles = layerTitles(maps);
    const heads = [...Array(Math.max(...maps.map((map) => map.weights.length))).keys()];
    const caption = (text, className) => make("span", { className: `caption ${className}` }, text);
    const cell = (map, layer, head) =>
      (map.weights[head] ? thumbnail(map, layer, head, scale, selection, palette) : make("span"));
    const rows = maps.flatMap((map, i) =>
      [caption(titles[i], "layer"), ...heads.map((head) => cell(map, titles[i], head))]);
    title.textContent = `${KINDS[maps[0].kind].title}: rows are layers, columns are heads`;
    grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, minmax(2.25rem, 7rem))`;
    grid.replaceChildren(make("span"), ...heads.map((head) => caption(String(head), "")), ...rows);
    element.hidden = maps.length * heads.length < 2;
  }

  return { element, show };
}

function thumbnail(map, layer, head, scale, selection, palette) {
  const canvas = make("canvas");
  drawMatrix(canvas, weightMatrix(map, head, scale), palette);
  const title = `layer ${layer}, head ${head}`;
  const isOnly = map.weights.length === 1;
  const ariaPressed = String(map.name === selection.map && (isOnly || String(head) === selection.head));
  const button = make("button",
    { type: "button", title, ariaLabel: title, ariaPressed, data: { map: map.name, head } }, canvas);
  button.classList.toggle("in-layer", map.name === selection.map);
  return button;
}
