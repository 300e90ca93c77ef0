// A picture for the clipboard, or for a file where the page may not reach the clipboard.
import { make } from "./dom.js";
import { asCanvas, asSvg } from "./shapes.js";

// `draw` makes the picture when it is asked for.
export function copyButtons(draw) {
  const told = make("output", { className: "caption", ariaLive: "polite" });
  const button = (form, copy) => {
    const each = make("button", { type: "button", title: `Copy this picture as ${form}` }, form);
    each.addEventListener("click", async () => { told.textContent = await copy(draw()); });
    return each;
  };
  const element = make("div", { className: "copy", role: "group", ariaLabel: "Copy as" },
    make("span", { className: "caption" }, "Copy as"), button("SVG", copySvg), button("PNG", copyPng), told);
  return { element, forget() { told.textContent = ""; } };
}

// SVG is text for editors and, where browsers know it, a picture for drawing programs.
function copySvg(picture) {
  const source = asSvg(picture);
  const as = (type) => new Blob([source], { type });
  const forms = { "text/plain": as("text/plain") };
  if (globalThis.ClipboardItem?.supports?.("image/svg+xml")) forms["image/svg+xml"] = as("image/svg+xml");
  return copyOrSave(forms, as("image/svg+xml"), "SVG");
}

async function copyPng(picture) {
  const blob = await new Promise((resolve) => { asCanvas(picture).toBlob(resolve, "image/png"); });
  return copyOrSave({ "image/png": blob }, blob, "PNG");
}

async function copyOrSave(forms, blob, form) {
  try {
    await navigator.clipboard.write([new ClipboardItem(forms)]);
    return `Copied as ${form}`;
  } catch {
    const name = `attention.${form.toLowerCase()}`;
    save(blob, name);
    return `Saved as ${name}`;
  }
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser reads it after this turn
}
