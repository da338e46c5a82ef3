"use strict";
// One receiver: asked for every second; its picture is live, its scopes are asked for while they are on the screen.
const id = new URLSearchParams(location.search).get("id") || "";
const base = "/api/v1/receivers/" + encodeURIComponent(id);
const live = $("live"), frame = $("frame");
let last = null, receiver = null, heard = performance.now();

$("to-events").href = $("all-events").href = "/events?receiver=" + encodeURIComponent(id);

// ---- what it is --------------------------------------------------------------------------------------------------------------
const EMPTY = { fps: null, legs: [], health: null };
function take(value) {
  receiver = value;
  const status = value.status, [how, word] = WORDS[value.state] || ["neutral", value.state];
  const flow = value.flow;
  text("name", value.label || value.id);
  document.title = (value.label || value.id) + " – gdmedia";
  text("format", [value.id, flow && flow.format, flow && flow.legs && flow.legs.join(" + ")].filter(Boolean).join(" · "));
  const place = value.placement, core = place && place.core !== null && "core " + place.core;
  text("doing", [word + " for " + ago(value.since), value.backend, value.processor, core].filter(Boolean).join(" · "));
  $("doing").title = place ? place.why : "";
  const why = value.reason || "";
  $("why").hidden = !why;
  $("why").className = "card reason-card " + how;
  text("why", why.replace("\ncure: ", "\n"));
  words({ ...EMPTY, ...status, health: value.health || (status && status.health) || null });
  if (value.state !== "receiving") { text("overall", word); $("overall").className = "pill " + how; }
  if (status && value.state !== "stopped") {
    const now = status.seconds ?? performance.now() / 1000;
    if (last && now < last.seconds) { history = []; last = null; } // begun anew
    const lost = last ? Math.max(status.lost - last.lost, 0) : 0, latency = status.latency_us || {};
    if (!last || now > last.seconds) history.push({ t: now, lost, mean: latency.mean, max: latency.max });
    while (history.length && history[0].t < now - SPAN) history.shift();
    figures(status, lost);
    last = { ...status, seconds: now };
    drawPlots();
  }
  if (flow && flow.width) {
    const aspect = (flow.width * flow.par[0]) / (flow.height * flow.par[1]);
    frame.style.aspectRatio = aspect;
    frame.style.maxWidth = "calc((100vh - 160px) * " + aspect + ")";
    text("waveform-what", (flow.sampling.startsWith("RGB") ? "R G B" : flow.sampling.startsWith("XYZ") ? "X Y Z" : "luma") +
      ", " + (flow.range === "NARROW" ? "narrow range" : "full range"));
  }
  picture(value, word);
  sinks(value.sinks);
  $("start").disabled = !["stopped", "failed"].includes(value.state);
  $("stop").disabled = value.state === "stopped";
  const viewers = value.preview ? value.preview.viewers : 0;
  text("about", value.restarts + " restarts · " + value.switches + " switches · " + viewers + (viewers === 1 ? " viewer" : " viewers"));
}
function picture(value, word) {
  const preview = value.preview, age = preview ? preview.age_ms : null;
  const away = !preview || value.state === "stopped" || age === null || age > 1500;
  frame.classList.toggle("stale", away);
  $("tally").className = away ? "tally" : "tally on";
  text("tally", away ? "NO PICTURE" : share.mayLive() ? "LIVE" : "LIVE, 2/s");
  $("tally").title = away || share.mayLive() ? "" : "Pages that were looked at later have the smooth pictures; click on this one";
  // While it has a picture now and then nobody may watch in between.
  const shown = !preview ? null : share.mayLive() ? preview.frame : live.dataset.number && Number(live.dataset.number);
  text("number", typeof shown === "number" ? "frame " + grouped(shown) : "");
  $("away").hidden = !away;
  $("wave").hidden = $("vector").hidden = !preview;
  if (scopesOff) $("vector").hidden = true;
  $("png").disabled = $("jpg").disabled = !preview || age === null;
  if (!away) return;
  text("away-what", !preview ? (value.state === "receiving" ? "No preview in the configuration" : word) :
    age === null ? "No frame has come yet" : "No frame for " + (age / 1000).toFixed(0) + " s");
  text("away-why", (value.reason || "").split("\n")[0]);
}
const cell = (value, name = "") => make("td", name ? { class: name } : {}, String(value ?? "–"));
const number = (value, bad) => cell(value === undefined || value === null ? "–" : grouped(value), "n" + (bad && value ? " hit" : value ? "" : " zero"));
function rows(id_, list, none, columns) {
  $(id_).replaceChildren(...(list.length ? list.map((one) => make("tr", {}, ...one)) : [make("tr", {}, make("td", { colspan: columns, class: "zero" }, none))]));
}
function sinks(list) {
  rows("sink-rows", list.map((sink) => [
    cell(sink.name + " (" + sink.kind + ")"), cell(sink.target),
    cell(sink.running ? "takes frames" : sink.reason || "does not run", sink.running ? "" : "hit"),
    number(sink.frames), number(sink.dropped, true), number(sink.queued), number(sink.restarts, true)]), "none", 7);
}
function counters(stats) {
  rows("leg-rows", (stats.legs || []).map((leg) => [
    cell(leg.leg), cell(leg.state, leg.state === "silent" ? "hit" : ""), number(leg.received), number(leg.lost, true), number(leg.late, true),
    number(leg.reordered), number(leg.redundant), cell(leg.skew && leg.skew.samples ? (leg.skew.last_ns / 1000).toFixed(0) + " µs" : "–", "n")]), "nothing is received", 8);
  const ms = (s) => (s * 1000).toFixed(2) + " ms";
  rows("hop-rows", Object.entries(stats.latency).filter(([, hop]) => hop.count).map(([name, hop]) => [
    cell(name), number(hop.count), cell(ms(hop.sum_seconds / hop.count), "n"),
    cell(hop.quantiles.map((q) => (q.quantile === 1 ? "max" : q.quantile * 100 + " %") + " " + ms(q.seconds)).join(" · "), "n")]), "nothing is measured", 4);
}

let asking = false;
async function refresh() {
  if (asking || document.hidden || !may("read")) return;
  asking = true;
  try {
    const [value, stats] = await Promise.all([data(base), data(base + "/stats")]);
    heard = performance.now();
    take(value);
    counters(stats);
    $("gone").hidden = true;
  } catch (error) {
    if (error instanceof Refused ? error.status !== 401 : performance.now() - heard > 4000) {
      text("gone", error instanceof Refused ? error.message : "No answer from gdmedia: it has ended, or cannot be reached. Trying again …");
      $("gone").hidden = false;
      frame.classList.add("stale");
    }
  }
  asking = false;
}

// ---- picture and scopes ------------------------------------------------------------------------------------------------------
let hand = null, moving = null;
async function watch() {
  for (;;) {
    if (document.hidden || !receiver || !receiver.preview || !may("read")) { await pause(500); continue; }
    hand = new AbortController();
    if (share.mayLive()) {
      moving = hand;
      await motion(base + "/preview/video.mjpeg", live, hand).catch(() => {});
      moving = null;
      // Given up in favour of another page: goes on at once with a picture now and then.
      await pause(hand.signal.aborted ? 0 : 1000);
    } else {
      await once(hand).catch(() => {});
      await pause(500);
    }
  }
}
async function once({ signal }) {
  const answer = await ask(base + "/preview/picture.jpg", { signal });
  if (answer.headers.get("x-frame-number") !== live.dataset.number || !live.src) show(live, await answer.blob());
  live.dataset.number = answer.headers.get("x-frame-number");
}
function whoIsLive() {
  if (moving && !share.mayLive()) moving.abort();
}
const seen = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.id) : seen.delete(target.id);
});
["waveform", "vectorscope"].forEach((name) => observer.observe($(name)));
let scopesOff = false;
const bitmap = async (name) => createImageBitmap(await (await ask(base + "/preview/" + name)).blob());
async function scopes() {
  const flow = receiver && receiver.flow;
  if (flow && receiver.preview && receiver.preview.age_ms !== null && !document.hidden) {
    try {
      if (seen.has("waveform")) drawWaveform(await bitmap("waveform.png"), flow);
      if (seen.has("vectorscope") && !scopesOff) drawVectorscope(await bitmap("vectorscope.png"), flow);
    } catch (error) {
      if (error instanceof Refused && error.status === 404 && receiver.preview) scopesOff = true;
    }
  }
  setTimeout(scopes, share.mayLive() ? 400 : 1200);
}
async function save(name) {
  try {
    const answer = await ask(base + "/preview/" + name);
    const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: id + "-" + answer.headers.get("x-frame-number") + "." + name.split(".")[1] });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) { say(error.message, "bad"); }
}
$("png").addEventListener("click", () => save("snapshot.png"));
$("jpg").addEventListener("click", () => save("snapshot.jpg"));
$("full").addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : frame.requestFullscreen && frame.requestFullscreen().catch(() => {})));

// ---- steering ----------------------------------------------------------------------------------------------------------------
function say(what, how = "") {
  text("said", what);
  $("said").className = how;
}
async function tell(what, path, options) {
  say(what + " …", "neutral");
  ["start", "stop", "switch"].forEach((button) => { $(button).disabled = true; });
  try {
    take(await data(base + path, options));
    say(what + ": done", "good");
  } catch (error) { say(what + ": " + error.message, "bad"); }
  $("switch").disabled = !$("sdp").value.trim();
  refresh();
}
$("start").addEventListener("click", () => tell("Start", "/start", { method: "POST" }));
$("stop").addEventListener("click", () => tell("Stop", "/stop", { method: "POST" }));
$("switch").addEventListener("click", () => tell("Switch", "/sdp", { method: "PUT", body: $("sdp").value, headers: { "Content-Type": "application/sdp" } }));
$("sdp").addEventListener("input", () => { $("switch").disabled = !$("sdp").value.trim(); });
async function inForce() {
  try { $("sdp").value = await (await ask(base + "/sdp")).text(); } catch (error) { say(error.message, "neutral"); }
  $("switch").disabled = !$("sdp").value.trim();
}
$("restore").addEventListener("click", inForce);
$("switching").addEventListener("toggle", () => { if ($("switching").open && !$("sdp").value) inForce(); });

// ---- begin -------------------------------------------------------------------------------------------------------------------
let begun = false;
function allowed() {
  refresh();
  share.showsLive();
  share.follow({ take: happened, fresh: () => $("events").replaceChildren(), state: () => {}, shared: whoIsLive });
  if (begun) return;
  begun = true;
  setInterval(refresh, 1000);
  watch();
  scopes();
}
let again = 0;
function happened(event) {
  if (event.receiver !== id) return;
  $("events").prepend(eventRow(event, false));
  while ($("events").children.length > 30) $("events").lastChild.remove();
  clearTimeout(again);
  again = setTimeout(refresh, 50);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden && hand) hand.abort();
  refresh();
});
whoAmI().then((in_) => in_ && allowed()).catch(() => setTimeout(() => location.reload(), 3000));
