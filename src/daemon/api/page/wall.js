"use strict";
// The wall: a tile for each receiver. What they are is asked for every two seconds, and at once when something happens; pictures
// every two seconds, of those tiles that are on the screen. Tiles are made once and changed in place.
const EVERY = 2000;
const tiles = new Map(); // id -> { root, image, ..., frame, visible }
const onScreen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const tile = tiles.get(target.dataset.id);
    if (tile) tile.visible = isIntersecting;
  }
}, { rootMargin: "100px" });

function tileOf(id) {
  const known = tiles.get(id);
  if (known) return known;
  const part = (name, of = "span") => make(of, { class: name });
  const tile = {
    image: make("img", { alt: "", hidden: "" }), word: part("pill"), reason: part("reason", "p"), label: part("label", "b"),
    name: part("id"), format: part("format"), fps: part("fps", "dd"), rate: part("rate", "dd"), lost: part("lost", "dd"),
    latency: part("latency", "dd"), away: part("away"), legs: part("tile-legs"), frame: null, visible: false, losses: Infinity, lossAt: -Infinity,
  };
  const figure = (title, of) => make("div", {}, make("dt", {}, title), of);
  tile.root = make("a", { class: "tile", href: "/receiver?id=" + encodeURIComponent(id), "data-id": id },
    make("span", { class: "picture" }, tile.image, tile.away, tile.word, tile.legs),
    make("span", { class: "line" }, tile.label, tile.name), tile.format,
    make("dl", { class: "figures" }, figure("frames/s", tile.fps), figure("Gb/s", tile.rate), figure("lost", tile.lost), figure("ms", tile.latency)),
    tile.reason);
  tiles.set(id, tile);
  onScreen.observe(tile.root);
  return tile;
}
function put(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

function paint(receiver) {
  const tile = tileOf(receiver.id), status = receiver.status, running = receiver.state === "receiving";
  const [how, word] = WORDS[receiver.state] || ["neutral", receiver.state];
  const health = receiver.health && receiver.health.overall;
  // Receives, and all is not well: the word of BCP-008-01 says more.
  const worse = running && health && kind(health.status) !== "good" && kind(health.status) !== "neutral";
  const looks = worse ? kind(health.status) : how;
  tile.root.className = "tile " + looks + (running ? "" : " dead");
  tile.word.className = "pill " + looks;
  put(tile.word, worse ? spoken(health.status) : word);
  tile.word.hidden = !running;
  put(tile.label, receiver.label || receiver.id);
  put(tile.name, receiver.label && receiver.label !== receiver.id ? receiver.id : "");
  put(tile.format, receiver.flow ? receiver.flow.format || receiver.flow.name || "" : "no SDP");
  const age = receiver.preview ? receiver.preview.age_ms : null;
  const away = !running ? word + " for " + ago(receiver.since) : age === null ? (receiver.preview ? "no picture yet" : "no preview") : age > 3000 ? "no frame for " + Math.round(age / 1000) + " s" : "";
  put(tile.away, away);
  tile.away.hidden = !away;
  tile.image.classList.toggle("old", !!away);
  put(tile.fps, running && status ? status.fps.toFixed(2) : "–");
  put(tile.rate, running && status ? (status.bit_rate / 1e9).toFixed(status.bit_rate < 1e8 ? 3 : 2) : "–");
  put(tile.lost, status ? grouped(status.lost) : "–");
  // Red for as long as it matters: half a minute after the last loss.
  if (status && status.lost > tile.losses) tile.lossAt = performance.now();
  tile.losses = status ? status.lost : Infinity;
  tile.lost.classList.toggle("hit", performance.now() - tile.lossAt < 30000);
  put(tile.latency, running && status && status.latency_us ? milli(status.latency_us.mean) : "–");
  const silent = running && status ? status.legs.filter((leg) => leg.state === "silent").map((leg) => leg.leg) : [];
  put(tile.legs, silent.length ? "leg " + silent.join(", ") + " silent" : "");
  const why = receiver.reason || (worse ? health.message : "") || "";
  put(tile.reason, why.split("\n")[0]);
  tile.reason.title = why;
  tile.wanted = !!receiver.preview && receiver.state !== "stopped";
  if (!tile.wanted) { tile.image.hidden = true; tile.frame = null; }
  return tile;
}

let asking = false, again = 0, heard = performance.now();
async function refresh() {
  if (asking || document.hidden || !may("read")) return;
  asking = true;
  try {
    const [{ receivers }, daemon] = await Promise.all([data("/api/v1/receivers"), data("/api/v1")]);
    heard = performance.now();
    const there = new Set(receivers.map((receiver) => receiver.id));
    for (const [id, tile] of tiles) if (!there.has(id)) { onScreen.unobserve(tile.root); tile.root.remove(); tiles.delete(id); }
    receivers.forEach((receiver, n) => {
      const { root } = paint(receiver);
      if ($("tiles").children[n] !== root) $("tiles").insertBefore(root, $("tiles").children[n] || null);
    });
    $("none").hidden = receivers.length > 0;
    const by = (state) => receivers.filter((receiver) => receiver.state === state).length;
    const parts = Object.keys(WORDS).map((state) => [by(state), ...WORDS[state]]).filter(([n]) => n);
    $("counts").replaceChildren(...parts.map(([n, how, word]) => make("span", { class: how }, n + " " + word)));
    document.title = (by("receiving") === receivers.length ? "" : "(" + (receivers.length - by("receiving")) + " not receiving) ") + "gdmedia";
    $("refused").hidden = !daemon.refused;
    text("refused", daemon.refused ? "The last configuration was not taken: " + daemon.refused : "");
    text("about", "gdmedia " + daemon.version + " · up for " + ago(daemon.started) + " · configuration " + daemon.generation);
    $("gone").hidden = true;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) { asking = false; return; }
    if (performance.now() - heard > 3 * EVERY || error instanceof Refused) {
      text("gone", error instanceof Refused ? error.message : "No answer from gdmedia: it has ended, or cannot be reached. Trying again …");
      $("gone").hidden = false;
    }
  }
  asking = false;
}

// A few at a time, so that figures do not wait behind pictures.
async function thumbnails() {
  const due = document.hidden || !may("read") ? [] : [...tiles].filter(([, tile]) => tile.visible && tile.wanted);
  const one = async ([id, tile]) => {
    try {
      const answer = await ask("/api/v1/receivers/" + encodeURIComponent(id) + "/thumbnail.jpg");
      const frame = answer.headers.get("x-frame-number");
      if (frame === tile.frame) return;
      show(tile.image, await answer.blob());
      tile.frame = frame;
      tile.image.hidden = false;
    } catch { /* the tile says how the receiver is */ }
  };
  for (let n = 0; n < due.length; n += 4) await Promise.all(due.slice(n, n + 4).map(one));
  setTimeout(thumbnails, EVERY);
}

const LATEST = 6;
function happened(event) {
  $("latest").prepend(eventRow(event, true));
  while ($("latest").children.length > LATEST) $("latest").lastChild.remove();
  clearTimeout(again);
  again = setTimeout(refresh, 150);
}

let begun = false;
function allowed() {
  refresh();
  share.follow({ take: happened, fresh: () => $("latest").replaceChildren(), state: () => {}, shared: () => {} });
  if (begun) return;
  begun = true;
  setInterval(refresh, EVERY);
  thumbnails();
}
document.addEventListener("visibilitychange", refresh);
whoAmI().then((in_) => in_ && allowed()).catch(() => {
  text("gone", "No answer from gdmedia. Trying again …");
  $("gone").hidden = false;
  setTimeout(() => location.reload(), 3000);
});
