// Form controls: a group of radio buttons, which the arrow keys move through, and a toggle.
import { make } from "./dom.js";

let groups = 0; // radio buttons of one group share a name, which must be unique on the page

// `onSelect(value)` is called when the user selects an option.
export function picker(title, onSelect) {
  const name = `attention-picker-${groups++}`;
  const element = make("fieldset", { className: "picker" }, make("legend", { className: "caption" }, title));
  element.addEventListener("change", (event) => onSelect(event.target.value));
  let current = "";
  // Show `options`, pairs of value and text. They are rebuilt only if they changed, so that focus is not lost.
  function show(options, selected) {
    if (current !== JSON.stringify(options)) {
      current = JSON.stringify(options);
      element.querySelectorAll("label").forEach((label) => label.remove());
      element.append(...options.map(([value, text]) =>
        make("label", {}, make("input", { type: "radio", name, value }), text)));
    }
    for (const input of element.querySelectorAll("input")) input.checked = input.value === selected;
    element.hidden = options.length < 2;
  }
  return { element, show };
}

// `onToggle(checked)` is called when the user switches it.
export function toggle(title, onToggle) {
  const input = make("input", { type: "checkbox" });
  const element = make("label", { className: "toggle" }, input, make("span", {}, title));
  input.addEventListener("change", () => onToggle(input.checked));
  return { element, show(checked) { input.checked = checked; } };
}
