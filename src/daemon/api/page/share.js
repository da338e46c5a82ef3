"use strict";
// Pages of one browser share what goes on and on. A browser has six connections to a server for all its pages together, so that
// three pages with events and a live picture each would leave none to steer with. One page follows the events and hands them on
// to the others; the two that were looked at last have live pictures, and others ask for a picture now and then. Pages that are
// hidden have neither. BroadcastChannel is there without TLS as well, other than locks (Web Locks).
const share = (() => {
  const LIVE = 2, KEPT = 2000;
  const SAID = 1000, GONE = 3500; // ms: pages say so often that they are there; who is silent for longer is not
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("gdmedia") : null;
  const me = { page: Math.random().toString(36).slice(2), born: Date.now(), focus: 0, live: false, leads: false };
  const pages = new Map(); // the others that are not hidden, as they say
  const active = () => may("read") && !document.hidden;
  function send(message) { if (channel) channel.postMessage({ ...message, from: me.page }); }
  function say(more = {}) { send({ what: "here", ...me, active: active(), ...more }); }

  // ---- events ------------------------------------------------------------------------------------------------------------------
  let kept = [], follower = null; // { id: "RUN-NUMBER", event }, oldest first; the page
  const runOf = (id) => id.split("-")[0], numberOf = (id) => Number(id.split("-")[1]);
  const newest = () => (kept.length ? kept[kept.length - 1].id : null);
  // Takes those that are news. Of another page they are complete where it was asked for them; otherwise it is asked where some are missing.
  function hear(list, complete) {
    for (const one of list) {
      const last = newest(), number = numberOf(one.id);
      const other = last === null || runOf(one.id) !== runOf(last);
      if (!other && number <= numberOf(last)) continue;
      if (!complete && number !== (other ? 1 : numberOf(last) + 1)) { send({ what: "want", last }); return; }
      if (last !== null && other) { kept = []; follower.fresh(); } // the daemon has begun anew
      kept.push(one);
      if (kept.length > KEPT) kept.shift();
      follower.take(one.event);
    }
  }
  // Events of all receivers, from the first one that is kept on; one page of all asks for them. `page` has functions: `take` an
  // event, all are gone for `fresh` ones as the daemon has begun anew, the `state` of the connection, and who has what is `shared` anew.
  function follow(page) {
    if (!follower) {
      follower = page;
      setInterval(() => { if (active()) say(); look(); }, SAID);
    }
    say({ hello: true });
    // Others answer meanwhile.
    setTimeout(look, 250);
  }

  // Server-sent events with a token, which EventSource cannot send: lists of them as they come, empty ones where it only says that it is there.
  async function* stream(path, last, hand) {
    let left = "";
    const decoder = new TextDecoder();
    for await (const part of octets(path, hand, { "Last-Event-ID": last })) {
      const blocks = (left + decoder.decode(part, { stream: true })).split("\n\n");
      left = blocks.pop();
      const list = [];
      for (const block of blocks) {
        const lines = block.split("\n");
        const value = (name) => (lines.find((line) => line.startsWith(name + ": ")) || "").slice(name.length + 2);
        if (value("id") && value("data")) list.push({ id: value("id"), event: JSON.parse(value("data")) });
      }
      yield list;
    }
  }
  let leading = null, led = null; // what this page follows with; who is known to lead
  async function lead() {
    const mine = (leading = {});
    me.leads = true;
    say();
    for (let wait = 500; leading === mine; wait = Math.min(wait * 2, 8000)) {
      const hand = (mine.hand = new AbortController());
      let timer = 0;
      // A comment comes every 5 s: silence is a connection that is gone.
      const alive = () => { clearTimeout(timer); timer = setTimeout(() => hand.abort(), 16000); };
      try {
        alive();
        for await (const list of stream("/api/v1/events", newest() ?? "0", hand)) {
          alive();
          wait = 500;
          told(true);
          hear(list, true);
          if (list.length) send({ what: "events", list, complete: false });
        }
      } catch { /* comes back by itself; without its token when there is another */ }
      clearTimeout(timer);
      if (leading !== mine) return;
      told(false);
      look();
      await pause(wait);
    }
  }
  function resign() {
    if (!leading) return;
    leading.hand.abort();
    leading = null;
    me.leads = false;
  }
  function told(there) {
    follower.state(there);
    send({ what: "state", there });
  }

  // ---- who has what ------------------------------------------------------------------------------------------------------------
  // Forgets those who have gone; whoever leads goes on to, else it is the oldest.
  function look() {
    for (const [page, other] of pages) if (performance.now() - other.heard > GONE) pages.delete(page);
    if (!follower) return;
    if (!active()) { resign(); led = null; return; }
    const all = [me, ...pages.values()], leaders = all.filter((page) => page.leads);
    const [first] = (leaders.length ? leaders : all).sort((a, b) => a.born - b.born || (a.page < b.page ? -1 : 1));
    if (first === me && !leading) lead();
    if (first !== me) {
      resign();
      if (led !== first.page) send({ what: "want", last: newest() });
    }
    led = first.page;
    follower.shared();
  }
  // May this page have a live picture?
  function mayLive() {
    const all = [me, ...pages.values()].filter((page) => page.live);
    all.sort((a, b) => b.focus - a.focus || (a.page < b.page ? -1 : 1));
    return all.indexOf(me) < LIVE;
  }
  if (channel) channel.addEventListener("message", ({ data: said }) => {
    const news = !pages.has(said.from);
    if (said.what === "here") {
      if (said.active) pages.set(said.from, { ...said, heard: performance.now() });
      else pages.delete(said.from);
      if (active() && said.active && (news || said.hello)) say();
      look();
    } else if (!follower) {
      return;
    } else if (said.what === "want" && leading) {
      const at = said.last ? kept.findIndex((one) => one.id === said.last) : -1;
      send({ what: "events", list: kept.slice(at + 1), complete: true, to: said.from });
    } else if (said.what === "events" && !leading && (!said.to || said.to === me.page)) {
      hear(said.list, said.complete);
    } else if (said.what === "state" && !leading) {
      follower.state(said.there);
    }
  });
  function looked() {
    if (document.hasFocus()) me.focus = Date.now();
    say();
    look();
  }
  window.addEventListener("focus", looked);
  window.addEventListener("pageshow", looked);
  document.addEventListener("visibilitychange", looked);
  window.addEventListener("pagehide", () => { say({ active: false }); resign(); });
  // `showsLive`: this page has a live picture where it may.
  return { follow, mayLive, showsLive: () => { me.live = true; } };
})();
