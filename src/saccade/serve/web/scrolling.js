// Two texts that stand side by side scroll side by side, in proportion, whichever of them is scrolled.

const distance = (element) => element.scrollHeight - element.clientHeight;

export function scrollTogether(one, other) {
  let led; // the one that was not scrolled by its reader
  const lead = (from, to) => () => {
    if (led === from) { led = undefined; return; }
    const place = Math.round((from.scrollTop / distance(from)) * distance(to));
    if (!distance(from) || Math.abs(place - to.scrollTop) < 1) return;
    led = to;
    to.scrollTop = place;
  };
  one.addEventListener("scroll", lead(one, other), { passive: true });
  other.addEventListener("scroll", lead(other, one), { passive: true });
}
