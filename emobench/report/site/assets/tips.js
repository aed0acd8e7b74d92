// What a term means, shown on hover and on focus: the text of the nearest `data-tip`. Escape takes it away.

const tip = h("div", { id: "tip", role: "tooltip", hidden: true });

/** A term with its definition, which the keyboard reaches, too. */
const term = (text, about) => (about ? h("span", { class: "term", tabindex: "0", "data-tip": about }, text) : text);

function showTip(target) {
  const [first, ...rest] = target.dataset.tip.split("\n");
  fill(tip, h("p", {}, first), rest.map((line, i) => h("p", { class: i === rest.length - 1 ? "tip-end" : null }, line)));
  tip.hidden = false;
  const at = target.getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = Math.min(Math.max(at.left + at.width / 2 - width / 2, 8), document.documentElement.clientWidth - width - 8);
  const top = at.bottom + 6 + height > window.innerHeight && at.top > height + 6 ? at.top - height - 6 : at.bottom + 6;
  Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  const focused = document.activeElement;
  if (target.contains(focused)) focused.setAttribute("aria-describedby", "tip");
}

function hideTip() {
  tip.hidden = true;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
}

function followTips() {
  document.body.append(tip);
  const on = (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (target) showTip(target);
    else hideTip();
  };
  document.addEventListener("pointerover", on);
  document.addEventListener("focusin", on);
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  window.addEventListener("scroll", hideTip, { passive: true, capture: true });
}
