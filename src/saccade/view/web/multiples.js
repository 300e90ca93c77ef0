// All heads of all layers at once, small; a click enlarges one.
import { KINDS, layerTitles } from "./choice.js";
import { paint } from "./colours.js";
import { make } from "./dom.js";
import { matrixOf } from "./weights.js";

export function multiples(pick) {
  const title = make("h2", { className: "caption" });
  const grid = make("div", { className: "grid" });
  const element = make("section", { className: "multiples", ariaLabel: "All heads" }, title, grid);
  grid.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    pick(button.dataset.map, button.dataset.head);
    grid.querySelector("[aria-pressed='true']").focus();
  });

  // `maps`: those of one kind.
  function show(maps, scale, choice, palette) {
    const titles = layerTitles(maps);
    const heads = [...Array(Math.max(...maps.map((map) => map.weights.length))).keys()];
    const caption = (text, kind) => make("span", { className: `caption ${kind}` }, text);
    const small = (map, layer, head) =>
      (map.weights[head] ? thumbnail(map, layer, head, scale, choice, palette) : make("span"));
    const rows = maps.flatMap((map, i) =>
      [caption(titles[i], "layer"), ...heads.map((head) => small(map, titles[i], head))]);
    title.textContent = `${KINDS[maps[0].kind].title}: layers down, heads across`;
    grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, minmax(2.25rem, 7rem))`;
    grid.replaceChildren(make("span"), ...heads.map((head) => caption(String(head), "")), ...rows);
    element.hidden = maps.length * heads.length < 2;
  }

  return { element, show };
}

function thumbnail(map, layer, head, scale, choice, palette) {
  const canvas = make("canvas");
  paint(canvas, matrixOf(map, head, scale), palette);
  const title = `layer ${layer}, head ${head}`;
  const isOnly = map.weights.length === 1;
  const ariaPressed = String(map.name === choice.map && (isOnly || String(head) === choice.head));
  const button = make("button",
    { type: "button", title, ariaLabel: title, ariaPressed, data: { map: map.name, head } }, canvas);
  button.classList.toggle("in-layer", map.name === choice.map);
  return button;
}
