"use strict";
// All events that are kept, and those that come. Filters hide rows; nothing is asked for again.
const MOST = 2000;
const known = new Set();
function filter(row) {
  row.hidden = ($("of").value && row.dataset.of !== $("of").value) || ($("about-what").value && row.dataset.kind !== $("about-what").value);
}
function counted() {
  const rows = [...$("events").children], seen = rows.filter((row) => !row.hidden).length;
  text("shown", seen === rows.length ? rows.length + " events" : seen + " of " + rows.length + " events");
}
let later = 0;
function happened(event) {
  if (event.receiver && !known.has(event.receiver)) {
    known.add(event.receiver);
    $("of").append(make("option", {}, event.receiver));
    if (event.receiver === new URLSearchParams(location.search).get("receiver")) { $("of").value = event.receiver; filtered(); }
  }
  const row = eventRow(event, true);
  row.dataset.of = event.receiver || "";
  row.dataset.kind = event.kind;
  filter(row);
  $("events").prepend(row);
  while ($("events").children.length > MOST) $("events").lastChild.remove();
  clearTimeout(later);
  later = setTimeout(counted, 50);
}
function filtered() {
  [...$("events").children].forEach(filter);
  counted();
}
$("of").addEventListener("change", filtered);
$("about-what").addEventListener("change", filtered);

function allowed() {
  share.follow({
    take: happened,
    fresh: () => { $("events").replaceChildren(); counted(); },
    state: (there) => {
      $("gone").hidden = there;
      text("gone", "No answer from gdmedia: it has ended, or cannot be reached. Trying again …");
    },
    shared: () => {},
  });
}
whoAmI().then((in_) => in_ && allowed()).catch(() => setTimeout(() => location.reload(), 3000));
