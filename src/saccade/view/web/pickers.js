// Controls: a row of radio buttons, which bring the arrow keys along, and a switch.
import { make } from "./dom.js";

let groups = 0; // radio buttons that exclude each other share a name, which nothing else on the page may have

export function picker(title, pick) {
  const name = `attention-picker-${groups++}`;
  const element = make("fieldset", { className: "picker" }, make("legend", { className: "caption" }, title));
  element.addEventListener("change", (event) => pick(event.target.value));
  let offered = "";
  // Rebuilt only when the options change, so that focus stays.
  function offer(options, chosen) {
    if (offered !== JSON.stringify(options)) {
      offered = JSON.stringify(options);
      element.querySelectorAll("label").forEach((label) => label.remove());
      element.append(...options.map(([value, text]) =>
        make("label", {}, make("input", { type: "radio", name, value }), text)));
    }
    for (const input of element.querySelectorAll("input")) input.checked = input.value === chosen;
    element.hidden = options.length < 2;
  }
  return { element, offer };
}

export function toggle(title, turn) {
  const input = make("input", { type: "checkbox" });
  const element = make("label", { className: "toggle" }, input, make("span", {}, title));
  input.addEventListener("change", () => turn(input.checked));
  return { element, show(on) { input.checked = on; } };
}
