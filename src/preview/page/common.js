"use strict";
// What the preview's page and the daemon's pages have in common: colours, words, figures, plots, scopes.
const $ = (id) => document.getElementById(id);

// ---- light or dark -----------------------------------------------------------------------------------------------------------
function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("gdmedia-theme", name); } catch { /* not kept then */ }
  drawPlots();
}
const otherTheme = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
try {
  const kept = location.hash === "#light" ? "light" : localStorage.getItem("gdmedia-theme");
  if (kept === "light") document.documentElement.dataset.theme = "light";
} catch { /* dark then */ }
if ($("theme")) $("theme").addEventListener("click", otherTheme);

// ---- words and figures -------------------------------------------------------------------------------------------------------
const KINDS = {
  AllUp: "good", Healthy: "good", SomeDown: "partly", PartiallyHealthy: "partly", AllDown: "bad", Unhealthy: "bad",
};
const kind = (word) => KINDS[word] || "neutral";
// BCP-008-01's words are names of values; people read them apart.
const spoken = (word) => word.replace(/([a-z])([A-Z])/g, (_, a, b) => a + " " + b.toLowerCase());

function text(id, value) {
  const element = $(id);
  if (element.textContent !== value) element.textContent = value;
}
const grouped = (n) => n.toLocaleString("en").replace(/,/g, "\u202f");
const milli = (us) => (us < 10000 ? (us / 1000).toFixed(2) : (us / 1000).toFixed(1));
function span(seconds) {
  const s = Math.floor(seconds), two = (n) => String(n).padStart(2, "0");
  return Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
}
function count(id, value, how) {
  text(id, grouped(value));
  $(id).parentElement.className = "count " + (value ? how : "zero");
}

function words(status) {
  const health = status.health;
  const overall = health ? health.overall.status : "Inactive";
  text("overall", spoken(overall));
  $("overall").className = "pill " + kind(overall);
  $("overall").title = (health && health.overall.message) || "";
  for (const item of $("words").children) {
    const reading = health ? health[item.dataset.domain] : { status: "Inactive", message: null };
    item.className = kind(reading.status);
    const [, , word, why] = item.children;
    word.textContent = spoken(reading.status);
    why.textContent = why.title = reading.message || "";
  }
  const legs = status.legs.length > 1 ? status.legs : [];
  $("legs").hidden = !legs.length;
  while ($("legs").children.length < legs.length) $("legs").append(document.createElement("li"));
  legs.forEach((leg, n) => {
    const item = $("legs").children[n], state = leg.state || "";
    item.className = state === "silent" ? "bad" : state === "unprotected" ? "partly" : "";
    const name = document.createElement("b");
    name.textContent = "leg " + n + " " + state;
    item.replaceChildren(name, " lost " + grouped(leg.lost) + ", late " + grouped(leg.late));
  });
  const slow = status.too_slow || [];
  $("slow").hidden = !slow.length;
  text("slow", slow.map((stage) => stage.message).filter(Boolean).join("; "));
}

function figures(status, lost) {
  const latency = status.latency_us || {};
  text("fps", status.fps.toFixed(2));
  text("rate", (status.bit_rate / 1e9).toFixed(3));
  count("lost", status.lost, "hit");
  count("late", status.late, "noted");
  count("reordered", status.reordered, "noted");
  count("incomplete", status.frames.incomplete, "hit");
  count("dropped", status.frames.dropped, "noted");
  count("rejected", status.rejected, "noted");
  text("loss-now", lost ? grouped(lost) : "0");
  text("latency-now", latency.mean === undefined ? "" : milli(latency.mean) + " ms");
}

// ---- plots -------------------------------------------------------------------------------------------------------------------
const SPAN = 120; // seconds of the plots
let history = []; // { t, lost, mean, max }
function canvas(id) {
  const element = $(id), ratio = window.devicePixelRatio || 1;
  const width = element.clientWidth, height = element.clientHeight;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (element.width !== w || element.height !== h) [element.width, element.height] = [w, h];
  const context = element.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}
// The next of 1, 2, 5, 10 …
function nice(top) {
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 5, 10].map((m) => m * power).find((n) => n >= top * 0.9999) || top;
}
function axes({ context, width, height }, top, unit) {
  const left = 14 + Math.ceil(Math.max(...[top / 2, top].map((v) => context.measureText(unit(v)).width)));
  const bottom = height - 15, y = (v) => bottom - (v / top) * (bottom - 5);
  context.strokeStyle = colour("grid");
  context.fillStyle = colour("soft");
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const v of [0, top / 2, top]) {
    context.beginPath();
    context.moveTo(left, Math.round(y(v)) + 0.5);
    context.lineTo(width, Math.round(y(v)) + 0.5);
    context.stroke();
    context.fillText(v === 0 ? "0" : unit(v), left - 6, y(v));
  }
  const now = history.length ? history[history.length - 1].t : 0;
  const x = (t) => left + ((t - now + SPAN) / SPAN) * (width - left - 1);
  context.textBaseline = "alphabetic";
  for (const [ago, name, align] of [[SPAN, "−2 min", "left"], [SPAN / 2, "−1 min", "center"], [0, "now", "right"]]) {
    context.textAlign = align;
    context.fillText(name, x(now - ago), height - 2);
  }
  return { x, y, bottom };
}
const short = (n) => (n >= 1e6 ? n / 1e6 + "M" : n >= 1e3 ? n / 1e3 + "k" : String(n));

function drawPlots() {
  if (document.hidden || !$("loss")) return;
  const loss = canvas("loss");
  const most = Math.max(2, ...history.map((p) => p.lost));
  const { x, y, bottom } = axes(loss, nice(most), short);
  loss.context.fillStyle = colour("fail");
  for (const p of history) if (p.lost) loss.context.fillRect(x(p.t) - 2, y(p.lost) - 1, 2, bottom - y(p.lost) + 1);

  const latency = canvas("latency");
  const known = history.filter((p) => p.mean !== undefined);
  const slowest = Math.max(100, ...known.map((p) => p.max));
  const at = axes(latency, nice(slowest), (us) => (us >= 1000 ? us / 1000 + " ms" : us + " µs"));
  const { context } = latency;
  // A break where nothing came.
  const runs = [];
  history.forEach((p, n) => {
    if (p.mean === undefined) return;
    if (n === 0 || history[n - 1].mean === undefined) runs.push([]);
    runs[runs.length - 1].push(p);
  });
  for (const run of runs) {
    context.beginPath();
    run.forEach((p) => context.lineTo(at.x(p.t), at.y(p.max)));
    [...run].reverse().forEach((p) => context.lineTo(at.x(p.t), at.y(p.mean)));
    context.fillStyle = colour("c0-soft");
    context.fill();
    context.beginPath();
    run.forEach((p) => context.lineTo(at.x(p.t), at.y(p.mean)));
    context.strokeStyle = colour("c0");
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.stroke();
  }
}
window.addEventListener("resize", drawPlots);

// ---- scopes ------------------------------------------------------------------------------------------------------------------
const LINE = "rgba(160, 178, 200, .25)", STRONG = "rgba(160, 178, 200, .5)", WRITING = "rgba(176, 192, 212, .8)";
function drawWaveform(image, flow) {
  if (!image) return;
  const { context, width, height } = canvas("waveform");
  const left = 44, top = 8, inside = height - 16;
  const y = (level) => top + (1 - level / 255) * inside;
  const narrow = flow.range === "NARROW";
  const [black, white] = narrow ? [16, 235] : [0, 255];
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const percent of [0, 25, 50, 75, 100]) {
    const at = Math.round(y(black + ((white - black) * percent) / 100)) + 0.5;
    context.strokeStyle = percent % 100 ? LINE : STRONG;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width - 6, at);
    context.stroke();
    context.fillStyle = WRITING;
    context.fillText(percent + (percent === 100 ? " %" : ""), left - 6, at);
  }
  context.globalCompositeOperation = "lighter";
  context.imageSmoothingQuality = "high";
  // Twice: thin traces stay to be seen when they are made smaller.
  for (let n = 0; n < 2; n++) context.drawImage(image, left, top, width - left - 6, inside);
  context.globalCompositeOperation = "source-over";
  image.close();
}

function drawVectorscope(image, flow) {
  const { context, width, height } = canvas("vectorscope");
  const size = Math.min(width, height) - 12;
  const [cx, cy] = [width / 2, height / 2];
  const at = (b, r) => [cx + ((b - 128) / 256) * size, cy - ((r - 128) / 256) * size];
  context.strokeStyle = LINE;
  context.lineWidth = 1;
  for (const part of [1, 0.5]) {
    context.beginPath();
    context.arc(cx, cy, (size / 2) * part, 0, 2 * Math.PI);
    context.stroke();
  }
  context.beginPath();
  context.moveTo(cx - size / 2, cy); context.lineTo(cx + size / 2, cy);
  context.moveTo(cx, cy - size / 2); context.lineTo(cx, cy + size / 2);
  context.stroke();
  context.globalCompositeOperation = "lighter";
  // With a glow: one cell is a point of one pixel, or less.
  for (const [dx, dy] of [[0, 0], [0, 0], [0.8, 0], [-0.8, 0], [0, 0.8], [0, -0.8]]) {
    context.drawImage(image, cx - size / 2 + dx, cy - size / 2 + dy, size, size);
  }
  context.globalCompositeOperation = "source-over";
  image.close();
  if (!flow.luma) return;
  const [kr, kb] = flow.luma, range = flow.range === "NARROW" ? 224 : 255;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const [name, red, green, blue] of [["R", 1, 0, 0], ["Mg", 1, 0, 1], ["B", 0, 0, 1], ["Cy", 0, 1, 1], ["G", 0, 1, 0], ["Yl", 1, 1, 0]]) {
    const [R, G, B] = [red, green, blue].map((v) => v * 0.75);
    const Y = kr * R + (1 - kr - kb) * G + kb * B;
    const [x, y] = at(128 + (range * (B - Y)) / (2 * (1 - kb)), 128 + (range * (R - Y)) / (2 * (1 - kr)));
    context.strokeStyle = STRONG;
    context.strokeRect(Math.round(x) - 5.5, Math.round(y) - 5.5, 11, 11);
    const far = Math.hypot(x - cx, y - cy) || 1;
    context.fillStyle = WRITING;
    context.fillText(name, x + ((x - cx) / far) * 15, y + ((y - cy) / far) * 15);
  }
}
