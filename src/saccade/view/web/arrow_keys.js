// Navigation by arrow keys, with a "roving tabindex": the tab key reaches one item, the one that was focused last.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0] };

export const clamp = (index, count) => Math.min(count - 1, Math.max(0, index));

// `neighborOf(item, down, right)` returns the item that many steps away, or the last one before the edge.
export function enableArrowKeys(container, neighborOf) {
  container.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    neighborOf(event.target, ...step).focus();
  });
  container.addEventListener("focusin", (event) => {
    container.querySelector("[tabindex='0']").tabIndex = -1;
    event.target.tabIndex = 0;
  });
}
