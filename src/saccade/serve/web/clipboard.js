// Copying text to the clipboard.
import { make } from "./view/dom.js";

// Copy a text; returns whether it worked. Over plain HTTP (except localhost) only the deprecated `execCommand` works.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { value: text, className: "visually-hidden" });
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    focused.focus();
    return copied;
  }
}
