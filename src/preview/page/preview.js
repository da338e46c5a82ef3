"use strict";
// The page of the preview. Status comes as server-sent events twice a second, the picture as MJPEG, scopes as PNG when they are
// on the screen; nothing is asked for while the page is hidden.
const live = $("live"), still = $("still"), frame = $("frame");

// ---- what is known -----------------------------------------------------------------------------------------------------------
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
  figures(status, lost);
  picture(status);
  const viewers = status.preview.viewers;
  text("about", "running for " + span(now) + " · " + viewers + (viewers === 1 ? " viewer" : " viewers") + ", one encoder");
  last = status;
  drawPlots();
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

// ---- hands -------------------------------------------------------------------------------------------------------------------
$("pause").addEventListener("click", () => (frozen ? goOn() : freeze()));
$("back").addEventListener("click", () => step(1));
$("forth").addEventListener("click", () => step(-1));
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

heard = performance.now();
buttons();
listen();
startLive();
scopes();
