// The texts of a page that have less than 4.5 of contrast with their ground.
() => {
  const channels = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(srgb") ? parts.map((part, i) => (i < 3 ? part * 255 : part)) : parts;
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.99) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = [];
  const check = (text, a, b) => ratio(a, b) < 4.5 && poor.push(`${text}: ${ratio(a, b).toFixed(2)}`);
  for (const node of document.querySelectorAll("body *:not(script):not(svg *)")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const disabled = node.closest(".disabled, .unseen, .skip, noscript");
    if (!own || disabled || !node.getClientRects().length) continue;
    check(node.textContent.trim().slice(0, 30), channels(getComputedStyle(node).color).slice(0, 3), ground(node));
  }
  for (const text of document.querySelectorAll(".chart svg text")) {
    const box = text.getBoundingClientRect();
    const there = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (!there.length) continue;  // out of the window: looked at when its chart is scrolled into it
    const under = there
      .find((node) => node.matches("svg path[role]") && getComputedStyle(node).fill !== "none");
    const behind = under ? channels(getComputedStyle(under).fill).slice(0, 3) : ground(text.closest(".chart"));
    check(text.textContent, channels(getComputedStyle(text).fill).slice(0, 3), behind);
  }
  return poor;
}
