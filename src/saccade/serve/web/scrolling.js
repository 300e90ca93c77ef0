// Keeps two elements at the same relative scroll position.

const scrollRange = (element) => element.scrollHeight - element.clientHeight;

export function syncScrolling(first, second) {
  let scrolledByScript; // the element whose next scroll event is not the user's
  const follow = (from, to) => () => {
    if (scrolledByScript === from) { scrolledByScript = undefined; return; }
    const position = Math.round((from.scrollTop / scrollRange(from)) * scrollRange(to));
    if (!scrollRange(from) || Math.abs(position - to.scrollTop) < 1) return;
    scrolledByScript = to;
    to.scrollTop = position;
  };
  first.addEventListener("scroll", follow(first, second), { passive: true });
  second.addEventListener("scroll", follow(second, first), { passive: true });
}
