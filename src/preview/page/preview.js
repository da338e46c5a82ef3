"use strict";
// The page of the preview. Status comes as server-sent events twice a second, the picture as MJPEG, scopes as PNG when they are
// on the screen; nothing is asked for while the page is hidden.
const $ = (id) => document.getElementById(id);
const live = $("live"), still = $("still"), frame = $("frame");

// ---- light or dark -----------------------------------------------------------------------------------------------------------
function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("gdmedia-theme", name); } catch { /* not kept then */ }
  drawPlots();
}
const otherTheme = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// ---- what is known -----------------------------------------------------------------------------------------------------------
const SPAN = 120; // seconds of the plots
let history = []; // { t, lost, mean, max }
let last = null; // the status before
let heard = 0; // when the last one came, by performance.now()
let frozen = null; // { freeze, frames, at }

// ---- the picture -------------------------------------------------------------------------------------------------------------
let retry = 0, retryTimer = 0;
function startLive() {
  clearTimeout(retryTimer);
  if (document.hidden || frozen) return;
  live.src = "video.mjpeg?" + Date.now();
}
function stopLive() {
  clearTimeout(retryTimer);
  live.removeAttribute("src");
}
live.addEventListener("load", () => { retry = 0; });
live.addEventListener("error", () => {
  if (!live.hasAttribute("src")) return;
  retry = Math.min(retry + 1, 5);
  retryTimer = setTimeout(startLive, retry * 1000);
});

// ---- the status --------------------------------------------------------------------------------------------------------------
let events = null;
function listen() {
  if (events || document.hidden) return;
  events = new EventSource("events");
  events.onmessage = (event) => {
    const back = performance.now() - heard > 4000 && heard > 0;
    heard = performance.now();
    if (back || !$("gone").hidden) startLive();
    $("gone").hidden = true;
    take(JSON.parse(event.data));
  };
  events.onerror = () => {
    // Tries again by itself, but not after a refusal.
    if (events && events.readyState === EventSource.CLOSED) deafen(), setTimeout(listen, 2000);
    checkGone();
  };
}
function deafen() {
  if (events) events.close();
  events = null;
}
function checkGone() {
  if (document.hidden) return;
  const silent = performance.now() - heard;
  if (silent < 4000) return;
  $("gone").textContent = "No answer from gdmedia: it has ended, or cannot be reached. Trying again …";
  $("gone").hidden = false;
  frame.classList.add("stale");
  $("tally").className = "tally";
  $("tally").textContent = "OFF";
}
setInterval(checkGone, 1000);

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

function take(status) {
  if (!status.flow) return;
  const now = status.seconds;
  if (last && now < last.seconds) { history = []; last = null; } // started anew
  describe(status.flow);
  const lost = last ? Math.max(status.lost - last.lost, 0) : 0;
  const latency = status.latency_us || {};
  history.push({ t: now, lost, mean: latency.mean, max: latency.max });
  while (history.length && history[0].t < now - SPAN) history.shift();
  words(status);
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
  picture(status);
  const viewers = status.preview.viewers;
  text("about", "running for " + span(now) + " · " + viewers + (viewers === 1 ? " viewer" : " viewers") + ", one encoder");
  last = status;
  drawPlots();
}
const milli = (us) => (us < 10000 ? (us / 1000).toFixed(2) : (us / 1000).toFixed(1));
function span(seconds) {
  const s = Math.floor(seconds), two = (n) => String(n).padStart(2, "0");
  return Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
}
function count(id, value, how) {
  text(id, grouped(value));
  $(id).parentElement.className = "count " + (value ? how : "zero");
}

let described = "";
function describe(flow) {
  const key = JSON.stringify(flow);
  if (key === described) return;
  described = key;
  text("name", flow.name || "ST 2110-20");
  text("format", flow.format + " · " + flow.legs.join(" + "));
  document.title = (flow.name || "stream") + " – gdmedia preview";
  frame.style.aspectRatio = flow.width * flow.par[0] + " / " + flow.height * flow.par[1];
  frame.style.maxWidth = "calc((100vh - 160px) * " + (flow.width * flow.par[0]) / (flow.height * flow.par[1]) + ")";
  text("waveform-what", (flow.sampling.startsWith("RGB") ? "R G B" : flow.sampling.startsWith("XYZ") ? "X Y Z" : "luma") +
    ", " + (flow.range === "NARROW" ? "narrow range" : "full range"));
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

function picture(status) {
  const { age_ms: age, frame: number } = status.preview;
  if (frozen) return;
  const away = age === null || age > 1500;
  frame.classList.toggle("stale", away);
  $("tally").className = away ? "tally" : "tally on";
  text("tally", away ? "NO PICTURE" : "LIVE");
  text("number", number === null ? "" : "frame " + grouped(number));
  $("away").hidden = !away;
  if (!away) return;
  text("away-what", age === null ? "No frame has come yet" : "No frame for " + (age / 1000).toFixed(0) + " s");
  const health = status.health || {};
  const why = [health.link, health.connection, health.stream].find((r) => r && r.message && kind(r.status) !== "good");
  text("away-why", why ? why.message : "");
}

// ---- stepping ----------------------------------------------------------------------------------------------------------------
let freezing = false;
async function freeze() {
  if (freezing || frozen) return;
  freezing = true;
  try {
    const answer = await fetch("freeze", { method: "POST" });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    frozen = { ...(await answer.json()), at: 0, ahead: [] };
    frozen.ahead = frozen.frames.map((_, n) => Object.assign(new Image(), { src: address(n) }));
    stopLive();
    show();
  } catch (error) {
    text("step", error.message || "cannot pause");
  }
  freezing = false;
}
const address = (at) => "frame?freeze=" + frozen.freeze + "&back=" + at;
function show() {
  const one = frozen.frames[frozen.at];
  still.src = address(frozen.at);
  still.hidden = false;
  live.hidden = true;
  $("away").hidden = true;
  frame.classList.remove("stale");
  $("pause").classList.add("held");
  text("pause-text", "Go on");
  $("tally").className = "tally held";
  text("tally", "PAUSED");
  text("number", "frame " + grouped(one.number));
  const where = frozen.at === 0 ? "newest of " + frozen.frames.length : "−" + frozen.at + " of " + (frozen.frames.length - 1);
  $("step").replaceChildren(where);
  if (!one.complete) {
    const holes = document.createElement("b");
    holes.textContent = " · " + grouped(one.missing_octets) + " octets missing";
    $("step").append(holes);
  }
  $("png").href = $("jpg").href = still.src;
  $("png").download = $("jpg").download = "frame-" + one.number + ".jpg";
  $("png").hidden = true;
  buttons();
}
function goOn() {
  frozen = null;
  still.hidden = true;
  still.removeAttribute("src");
  live.hidden = false;
  $("pause").classList.remove("held");
  text("pause-text", "Pause");
  text("step", "");
  $("png").hidden = false;
  $("png").href = "snapshot.png?download";
  $("jpg").href = "snapshot.jpg?download";
  $("png").download = $("jpg").download = "";
  buttons();
  startLive();
  if (last) picture(last);
}
async function step(by) {
  if (!frozen) await freeze();
  if (!frozen) return;
  frozen.at = Math.min(Math.max(frozen.at + by, 0), frozen.frames.length - 1);
  show();
}
function buttons() {
  $("forth").disabled = !frozen || frozen.at === 0;
  $("back").disabled = !!frozen && frozen.at === frozen.frames.length - 1;
}

// ---- plots -------------------------------------------------------------------------------------------------------------------
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
  if (document.hidden) return;
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

// ---- scopes ------------------------------------------------------------------------------------------------------------------
const seen = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.id) : seen.delete(target.id);
});
["waveform", "vectorscope"].forEach((id) => observer.observe($(id)));

async function bitmap(path) {
  const answer = await fetch(path);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(answer.statusText);
  return createImageBitmap(await answer.blob());
}
let scopesOff = false;
async function scopes() {
  try {
    const flow = last && last.flow;
    const known = flow && performance.now() - heard < 1500 && last.preview.age_ms !== null;
    if (known && !document.hidden && !frozen) {
      if (seen.has("waveform")) drawWaveform(await bitmap("waveform.png"), flow);
      if (seen.has("vectorscope") && !scopesOff) {
        const image = await bitmap("vectorscope.png");
        scopesOff = !image;
        $("vector").hidden = scopesOff;
        if (image) drawVectorscope(image, flow);
      }
    }
  } catch { /* not now: the next try says whether it is back */ }
  setTimeout(scopes, 250);
}

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

// ---- hands -------------------------------------------------------------------------------------------------------------------
$("pause").addEventListener("click", () => (frozen ? goOn() : freeze()));
$("back").addEventListener("click", () => step(1));
$("forth").addEventListener("click", () => step(-1));
$("theme").addEventListener("click", otherTheme);
$("full").addEventListener("click", whole);
function whole() {
  if (document.fullscreenElement) document.exitFullscreen();
  else if (frame.requestFullscreen) frame.requestFullscreen().catch(() => {});
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const on = event.target instanceof Element && event.target.closest("button, a");
  const keys = {
    " ": () => $("pause").click(), ArrowLeft: () => step(1), ArrowRight: () => (frozen ? step(-1) : null),
    s: () => (frozen ? $("jpg") : $("png")).click(), f: whole, t: otherTheme, Escape: () => frozen && goOn(),
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || (on && event.key === " ")) return;
  event.preventDefault();
  act();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stopLive(); deafen(); return; }
  heard = performance.now();
  listen();
  startLive();
});
window.addEventListener("resize", drawPlots);

try {
  const kept = location.hash === "#light" ? "light" : localStorage.getItem("gdmedia-theme");
  if (kept === "light") document.documentElement.dataset.theme = "light";
} catch { /* dark then */ }
heard = performance.now();
buttons();
listen();
startLive();
scopes();
