for (const figure of document.querySelectorAll("figure.curves")) {
  const numbers = JSON.parse(figure.querySelector("script").textContent);
  const drawing = figure.querySelector("svg"), pointer = figure.querySelector(".pointer");
  const values = figure.querySelector(".values"), x = numbers.x;
  const short = v => v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4));
  const row = (name, words, color) => {
    const line = document.createElement(name);
    if (color !== undefined) {
      const dot = document.createElement("i");
      dot.style.background = `var(--c${color})`;
      line.append(dot);
    }
    line.append(words);
    values.append(line);
  };
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (steps[middle] > step) high = middle; else low = middle; }
    return step - steps[low] < steps[high] - step ? low : high;
  };
  const hide = () => { values.hidden = true; pointer.setAttribute("visibility", "hidden"); };
  const show = event => {
    const box = drawing.getBoundingClientRect();
    const place = Math.min(Math.max((event.clientX - box.left) / box.width * x.width, x.start), x.end);
    const step = x.low + (place - x.start) / (x.end - x.start) * (x.high - x.low);
    values.replaceChildren();
    row("b", `${Math.round(step).toLocaleString("en")} ${numbers.unit}`);
    for (const line of numbers.lines) {
      if (step < line.steps[0] || step > line.steps[line.steps.length - 1]) continue;
      const i = nearest(line.steps, step);
      const band = line.low ? ` [${short(line.low[i])}, ${short(line.high[i])}]` : "";
      row("span", `${line.label}: ${short(line.center[i])}${band}`, line.color);
    }
    values.hidden = false;
    const right = place > x.width / 2;
    values.style.left = right ? "auto" : `${place / x.width * 100 + 2}%`;
    values.style.right = right ? `${100 - place / x.width * 100 + 2}%` : "auto";
    pointer.setAttribute("x1", place); pointer.setAttribute("x2", place);
    pointer.setAttribute("visibility", "visible");
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", hide);
}
