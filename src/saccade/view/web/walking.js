// The arrow keys walk from place to place; the tab key reaches one of them, the last one visited.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0] };

export const clamp = (index, count) => Math.min(count - 1, Math.max(0, index));

// `neighbour(element, down, right)`: the place that many steps away, or the last one before the edge.
export function walkable(container, neighbour) {
  container.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    neighbour(event.target, ...step).focus();
  });
  container.addEventListener("focusin", (event) => {
    container.querySelector("[tabindex='0']").tabIndex = -1;
    event.target.tabIndex = 0;
  });
}
