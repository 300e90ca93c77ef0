// Text for the clipboard.
import { make } from "./view/dom.js";

// Whether it got there. Over plain HTTP from elsewhere the old way is the only one.
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { value: text, className: "only-heard" });
    const reader = document.activeElement;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    reader.focus();
    return done;
  }
}
