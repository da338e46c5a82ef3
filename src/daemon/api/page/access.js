"use strict";
// Requests of the daemon's pages. Where a token is needed it is typed once and kept for this tab alone; it travels in a header,
// so that pictures and events are fetched here and not by addresses in the page.
const KEY = "gdmedia-token";
let token = "";
try { token = sessionStorage.getItem(KEY) || ""; } catch { /* asked for again then */ }
let access = { token_needed: false, scopes: [] };
const may = (scope) => access.scopes.includes(scope);

// What a refusal says.
class Refused extends Error {
  constructor(status, { error, cure }) {
    super(error + (cure ? ": " + cure : ""));
    this.status = status;
  }
}
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ error: answer.status + " " + answer.statusText }));
  if (answer.status === 401) {
    access = { token_needed: true, scopes: [] };
    askForToken();
  }
  throw new Refused(answer.status, said);
}
const data = async (path, options) => (await ask(path, options)).json();

// ---- the token ---------------------------------------------------------------------------------------------------------------
async function whoAmI() {
  access = await data("/api/v1/access");
  document.documentElement.classList.toggle("control", may("control"));
  $("key").hidden = !access.token_needed;
  $("key").title = !access.scopes.length ? "A token is needed" : may("control") ? "This token may see and steer" : "This token may see";
  if (!may("read")) askForToken();
  return may("read");
}
function askForToken() {
  const dialog = $("token");
  if (!dialog.open) dialog.showModal();
}
$("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  token = $("token-text").value.trim();
  $("token-text").value = "";
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch { /* for as long as this page is open then */ }
  await whoAmI().catch((error) => text("token-why", error.message));
  if (!may("read")) { text("token-why", "Nobody knows this token."); return; }
  text("token-why", "");
  $("token").close();
  allowed();
});
$("key").addEventListener("click", askForToken);

// ---- streams -----------------------------------------------------------------------------------------------------------------
// Octets of an answer that goes on, until `hand` is aborted.
async function* octets(path, hand, headers = {}) {
  const reader = (await ask(path, { signal: hand.signal, headers })).body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A JPEG as the picture of an image; the one before is given back.
function show(image, blob) {
  const before = image.src;
  image.src = URL.createObjectURL(blob);
  if (before.startsWith("blob:")) URL.revokeObjectURL(before);
}
// The live picture: parts of multipart/x-mixed-replace, each with its length.
async function motion(path, image, hand) {
  let left = new Uint8Array(0);
  const decoder = new TextDecoder();
  for await (const part of octets(path, hand)) {
    const all = new Uint8Array(left.length + part.length);
    all.set(left);
    all.set(part, left.length);
    left = all;
    for (;;) {
      const head = decoder.decode(left.subarray(0, 400));
      const end = head.indexOf("\r\n\r\n", head.indexOf("Content-Type"));
      const length = /Content-Length: (\d+)/.exec(head.slice(0, Math.max(end, 0)));
      if (!length || left.length < end + 4 + Number(length[1])) break;
      const from = end + 4, to = from + Number(length[1]);
      show(image, new Blob([left.subarray(from, to)], { type: "image/jpeg" }));
      left = left.slice(to);
    }
  }
}

const WORDS = {
  receiving: ["good", "receiving"], starting: ["neutral", "starting"], waiting: ["partly", "waiting"],
  retrying: ["bad", "trying again"], failed: ["bad", "failed"], stopped: ["neutral", "stopped"],
};
const ago = (time) => {
  const s = Math.max(0, Math.round((Date.now() - Date.parse(time)) / 1000));
  return s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
};
// An element with text and children: text is never read as HTML.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
function eventRow(event, withReceiver) {
  const row = make("li", { class: "event " + event.kind },
    make("time", { title: event.at }, new Date(event.at).toLocaleTimeString("en-GB")), make("b", {}, event.kind));
  if (withReceiver) {
    row.append(event.receiver ? make("a", { href: "/receiver?id=" + encodeURIComponent(event.receiver) }, event.receiver) : make("i", {}, "daemon"));
  }
  row.append(make("span", {}, event.message));
  return row;
}
