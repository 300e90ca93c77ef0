// Buttons that copy an image to the clipboard, or save it as a file if the page may not use the clipboard.
import { make } from "./dom.js";
import { imageCanvas, svgSource } from "./image_formats.js";

// `draw()` returns the image; it is called after a click.
export function copyButtons(draw) {
  const status = make("output", { className: "caption", ariaLive: "polite" });
  const button = (format, copy) => {
    const element = make("button", { type: "button", title: `Copy this image as ${format}` }, format);
    element.addEventListener("click", async () => { status.textContent = await copy(draw()); });
    return element;
  };
  const element = make("div", { className: "copy", role: "group", ariaLabel: "Copy as" },
    make("span", { className: "caption" }, "Copy as"), button("SVG", copySvg), button("PNG", copyPng), status);
  return { element, clearStatus() { status.textContent = ""; } };
}

// SVG is copied as text for editors and, if the browser supports it, also as an image for drawing programs.
function copySvg(image) {
  const source = svgSource(image);
  const blobOf = (type) => new Blob([source], { type });
  const blobs = { "text/plain": blobOf("text/plain") };
  if (globalThis.ClipboardItem?.supports?.("image/svg+xml")) blobs["image/svg+xml"] = blobOf("image/svg+xml");
  return copyOrSave(blobs, blobOf("image/svg+xml"), "SVG");
}

async function copyPng(image) {
  const blob = await new Promise((resolve) => { imageCanvas(image).toBlob(resolve, "image/png"); });
  return copyOrSave({ "image/png": blob }, blob, "PNG");
}

async function copyOrSave(blobs, file, format) {
  try {
    await navigator.clipboard.write([new ClipboardItem(blobs)]);
    return `Copied as ${format}`;
  } catch {
    const name = `attention.${format.toLowerCase()}`;
    save(file, name);
    return `Saved as ${name}`;
  }
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser starts to read it after this function returns
}
