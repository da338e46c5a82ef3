"use strict";
// The values under the pointer, for plots over time.
const tip = document.getElementById("tip");
for (const svg of document.querySelectorAll("svg[data-lines]")) {
  const end = Number(svg.dataset.end) || 1;
  const lines = svg.dataset.lines.split("|").map((text) => {
    const [name, ...points] = text.split(";");
    return { name, points: points.map((p) => p.split(",").map(Number)) };
  });
  const rule = svg.querySelector(".h");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 440;
    const t = Math.min(Math.max((x - 50) / 378, 0), 1) * end;
    const rows = [t.toPrecision(4) + " s"];
    for (const { name, points } of lines) {
      if (!points.length) continue;
      const p = points.reduce((a, b) => (Math.abs(b[0] - t) < Math.abs(a[0] - t) ? b : a));
      rows.push((lines.length > 1 ? name + "  " : "") + p[1] + " / " + p[2] + " / " + p[3] + " " + svg.dataset.unit);
    }
    rule.setAttribute("d", "M" + x.toFixed(1) + " 12V184");
    tip.textContent = rows.join("\n");
    tip.hidden = false;
    const left = Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(left, 4) + "px";
    tip.style.top = event.pageY + 14 + "px";
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    rule.setAttribute("d", "");
  });
}
