// The page itself: the token's form, the tabs, and what a followed scope has, as rows.

import { Follower, kEventsKept, token } from "./registry.js";
import { Table, badge, bytes, chips, count, counted, element, labelChips, muted, setText, span } from "./table.js";

const kViews = ["peers", "services", "regions", "links", "events"];
const $ = (id) => document.getElementById(id);
// On a wide screen, events are beside the current view.
const wide = matchMedia("(min-width: 75rem)");

let follower = null;
let view = "peers";
let filter = [];
let drawing = false;

// ---- rows

const kMoods = { serving: "good", draining: "warn", not_serving: "bad", ready: "good" };
const kEventMoods = { registered: "good", updated: "plain", deregistered: "plain", expired: "bad", links: "plain" };
const dashed = (text) => (text ? text : muted("–"));
const rate = (value) => (value > 0 ? `${bytes(value)}/s` : muted("idle"));

// Switches to a view with that peer in the filter.
function jump(text, to, peer, label) {
  const button = element("button", { type: "button", class: "jump", "aria-label": label }, text);
  button.addEventListener("click", () => {
    $("filter").value = peer;
    readFilter();
    select(to);
  });
  return button;
}

function nameCell({ name, kind }) {
  return [element("span", { class: "name" }, name), kind ? " " : "", kind ? element("span", { class: "kind" }, kind) : ""];
}

const countCell = (items, to, peer, what) =>
  items.length > 0 ? jump(count(items.length), to, peer, `${counted(items.length, what)} of ${peer}`) : muted("0");

const peerColumns = [
  { label: "Name", class: "first", cell: ({ item }) => nameCell(item) },
  { label: "Host", cell: ({ item }) => element("span", { class: "mono" }, item.address) },
  { label: "Providers", cell: ({ item }) => chips(item.providers) },
  { label: "Services", class: "number", cell: ({ item }) => countCell(item.services, "services", item.name, "service") },
  { label: "Regions", class: "number", cell: ({ item }) => countCell(item.regions, "regions", item.name, "region") },
  {
    label: "Labels",
    class: "labels",
    cell: ({ item }) => labelChips(item.metadata),
    has: ({ item }) => Object.keys(item.metadata).length > 0,
  },
  {
    label: "Lease left",
    class: "lease",
    cell: () => [
      element("span", { class: "lease-bar", "aria-hidden": "true" }, element("i")),
      element("span", { class: "lease-text" }),
    ],
  },
  { label: "Incarnation", class: "mono muted", cell: ({ item }) => String(item.incarnation) },
];

const serviceColumns = [
  { label: "Service", class: "first", cell: ({ item }) => nameCell(item) },
  { label: "Health", cell: ({ item }) => badge(item.health.replace("_", " "), kMoods[item.health] ?? "warn") },
  { label: "Peer", cell: ({ peer }) => jump(peer.name, "peers", peer.name, `peer ${peer.name}`) },
  { label: "Host", cell: ({ peer }) => element("span", { class: "mono" }, peer.address) },
  { label: "Methods", cell: ({ item }) => chips(item.methods) },
  { label: "Labels", class: "labels", cell: ({ item }) => labelChips(item.labels), has: ({ item }) => item.labels },
];

const regionColumns = [
  { label: "Region", class: "first", cell: ({ item }) => nameCell(item) },
  { label: "Size", class: "number", cell: ({ item }) => bytes(item.length_bytes) },
  { label: "Rights", cell: ({ item }) => item.rights.replace("_", " and ") },
  { label: "Peer", cell: ({ peer }) => jump(peer.name, "peers", peer.name, `peer ${peer.name}`) },
  { label: "Host", cell: ({ peer }) => element("span", { class: "mono" }, peer.address) },
];

function linkState(link) {
  if (link.state !== undefined) return [link.state || "unknown", kMoods[link.state] ?? "warn"];
  return link.both_there ? ["not reported", "plain"] : ["peer absent", "bad"];
}

function traffic(total, perSecond) {
  if (total === undefined) return muted("–");
  return [element("span", { class: "rate" }, perSecond === null ? muted("...") : rate(perSecond)), muted(` ${bytes(total)}`)];
}

const linkColumns = [
  { label: "From", class: "first", cell: ({ item }) => jump(item.from, "peers", item.from, `peer ${item.from}`) },
  { label: "To", cell: ({ item }) => jump(item.to, "peers", item.to, `peer ${item.to}`) },
  { label: "State", cell: ({ item }) => badge(...linkState(item)) },
  { label: "Wanted", cell: ({ item }) => (item.wanted ? "yes" : muted("no")) },
  { label: "Provider", cell: ({ item }) => dashed(item.provider) },
  { label: "Sent", cell: ({ item, rates }) => traffic(item.sent_bytes, rates && rates[0]) },
  { label: "Received", cell: ({ item, rates }) => traffic(item.received_bytes, rates && rates[1]) },
  { label: "Direct", cell: ({ item, rates }) => traffic(item.direct_bytes, rates && rates[2]) },
  {
    label: "Calls",
    class: "number",
    cell: ({ item, rates }) => {
      if (item.calls === undefined) return muted("–");
      return rates && rates[3] > 0 ? `${count(Math.round(rates[3]))}/s` : muted(count(item.calls));
    },
  },
];

const eventColumns = [
  { label: "Time", class: "mono", cell: ({ when }) => (when instanceof Date ? when.toLocaleTimeString("en-GB") : muted(when)) },
  { label: "Event", cell: ({ item }) => badge(item.event, kEventMoods[item.event]) },
  {
    label: "Peer",
    class: "first",
    cell: ({ item }) => [
      jump(item.name, "peers", item.name, `peer ${item.name}`),
      " ",
      element("span", { class: "kind" }, [item.kind, item.address].filter(Boolean).join(" ")),
    ],
  },
];

const tables = {
  peers: new Table($("view-peers"), "Peers", peerColumns, "No peer is registered in this scope."),
  services: new Table($("view-services"), "Services", serviceColumns, "No peer of this scope has a service."),
  regions: new Table($("view-regions"), "Regions", regionColumns, "No peer of this scope has published a region."),
  links: new Table($("view-links"), "Links", linkColumns, "No link is wanted or reported in this scope."),
  events: new Table($("view-events"), "Events", eventColumns, "Nothing has changed yet."),
};

// ---- entries with the text that the filter searches, computed once per change

const words = (...parts) => parts.flat().join(" ").toLowerCase();
const flat = (labels) => Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`);
const known = new Map(); // by peer: {version, peer, services, regions}

function entriesOf(peer, at) {
  const version = `${peer.incarnation} ${peer.revision}`;
  let entry = known.get(peer.name);
  if (entry?.version !== version) {
    const of = words(peer.name, peer.address);
    const part = (kind, item, text) => ({ key: `${peer.name} ${item.name}`, version, kind, item, peer, text: `${text} ${of}` });
    entry = {
      version,
      peer: { key: peer.name, version, text: words(of, peer.kind, peer.providers, flat(peer.metadata), peer.incarnation) },
      services: peer.services.map((s) =>
        part("service", s, words(s.name, s.kind, s.health, s.health.replace("_", " "), s.methods, flat(s.labels))),
      ),
      regions: peer.regions.map((r) => part("region", r, words(r.name, r.rights))),
    };
    known.set(peer.name, entry);
  }
  entry.peer.item = peer;
  entry.peer.at = at;
  return entry;
}

function collect() {
  const out = { peers: [], services: [], regions: [], links: [], events: [] };
  for (const { item, at } of follower.peers.values()) {
    const entry = entriesOf(item, at);
    out.peers.push(entry.peer);
    out.services.push(...entry.services);
    out.regions.push(...entry.regions);
  }
  for (const name of known.keys()) if (!follower.peers.has(name)) known.delete(name);
  out.links = follower.links.map(({ item, rate: rates }) => ({
    key: `${item.from} ${item.to}`,
    version: JSON.stringify([item, rates]),
    quiet: true,
    item,
    rates,
    text: words(item.from, item.to, item.provider ?? "", linkState(item)[0]),
  }));
  out.events = follower.events.map(({ item, when, number }) => ({
    key: String(number),
    version: 0,
    item,
    when,
    text: words(item.event, item.name, item.kind, item.address),
  }));
  return out;
}

// ---- drawing

const note = (items, bad, what) => {
  const n = items.filter(bad).length;
  return n > 0 ? `${count(n)} ${what}` : "";
};

function drawTab(name, total, remark) {
  const tab = $(`tab-${name}`);
  setText(tab.querySelector("b"), total >= kEventsKept && name === "events" ? `${kEventsKept}+` : count(total));
  setText(tab.querySelector("small"), remark);
}

function drawScopes() {
  const select = $("scope");
  const scopes = [...new Set([...follower.scopes, ...(follower.scope ? [follower.scope] : [])])].sort();
  if ([...select.options].map((option) => option.value).join() !== scopes.join())
    select.replaceChildren(...scopes.map((scope) => element("option", { value: scope }, scope)));
  select.value = follower.scope;
  select.disabled = scopes.length < 2;
}

function draw() {
  drawing = false;
  if (!follower || follower.status.version === undefined) return;
  const { status, scope } = follower;
  const all = collect();
  $("sign-in").hidden = true;
  $("overview").hidden = false;
  $("bar-end").hidden = false;
  drawScopes();
  drawTab("peers", all.peers.length, "");
  drawTab("services", all.services.length, note(all.services, ({ item }) => item.health !== "serving", "not serving"));
  drawTab("regions", all.regions.length, "");
  drawTab("links", all.links.length, note(all.links, ({ item }) => !item.both_there, "without a peer"));
  drawTab("events", all.events.length, "");
  setText(
    $("summary"),
    scope
      ? `${counted(all.peers.length, "peer")}, ${counted(all.services.length, "service")}, ${counted(all.links.length, "link")} ` +
          `in ${scope} at revision ${follower.revision}. nanoctrl ${status.version}, up for ${span(status.uptime_ms)}.`
      : `Nothing has registered yet. nanoctrl ${status.version}, up for ${span(status.uptime_ms)}.`,
  );
  document.title = `${counted(all.peers.length, "peer")} · ${scope} · nanoctrl`;
  for (const name of kViews) {
    if ($(`view-${name}`).hidden) continue;
    const matching = filter.length === 0 ? all[name] : all[name].filter(({ text }) => filter.every((word) => text.includes(word)));
    tables[name].show(matching, filter.length > 0);
    if (name === view) setText($("matches"), filter.length > 0 ? `${count(matching.length)} of ${count(all[name].length)}` : "");
  }
  drawLeases();
}

// Draws at most once per animation frame.
function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(draw);
}

const leaseText = (left) => (left < 600_000 ? `${Math.ceil(left / 1000)} s` : span(left));

// Shows the time left in nanoctrl's reply, minus the time since the reply. Compares no clocks of two machines.
function drawLeases() {
  if ($("view-peers").hidden || !follower) return;
  const now = performance.now();
  tables.peers.each((row, { item, at }) => {
    const left = item.expires_in_ms - (now - at);
    const share = Math.min(1, Math.max(0, left) / (item.ttl_ms ?? follower.status.ttl_ms));
    const cell = row.querySelector(".lease");
    // With very many peers the lists are read rarely: the lease was renewed since, or will be reported expired.
    const text = left > 0 ? leaseText(left) : `asked ${span(now - at)} ago`;
    setText(cell.querySelector(".lease-text"), text);
    cell.querySelector("i").style.inlineSize = `${Math.round(share * 100)}%`;
    cell.classList.toggle("short", left > 0 && share < 0.4);
  });
}

// ---- user actions

// The URL contains the scope and the view, so that it can be bookmarked or shared, but never the token.
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  return { scope: address.get("scope") ?? "", view: address.get("view") ?? "" };
}
function writeAddress() {
  const scope = follower?.scope || readAddress().scope;
  const address = new URLSearchParams({ ...(scope && { scope }), ...(view !== "peers" && { view }) }).toString();
  history.replaceState(null, "", address ? `#${address}` : location.pathname);
}

function select(name) {
  view = kViews.includes(name) ? name : "peers";
  if (wide.matches && view === "events") view = "peers";
  for (const other of kViews) {
    const tab = $(`tab-${other}`);
    tab.setAttribute("aria-selected", String(other === view));
    tab.tabIndex = other === view ? 0 : -1;
    $(`view-${other}`).hidden = other !== view && !(other === "events" && wide.matches);
  }
  $("tab-events").hidden = wide.matches;
  writeAddress();
  drawSoon();
}

function moveInTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const shown = kViews.filter((name) => !$(`tab-${name}`).hidden);
  const next = shown[(shown.indexOf(view) + step + shown.length) % shown.length];
  select(next);
  $(`tab-${next}`).focus();
  event.preventDefault();
}

function readFilter() {
  filter = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  drawSoon();
}

const kStates = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", busy: "nanoctrl is busy" };
function showConnection(state) {
  const line = $("connection");
  line.dataset.state = state;
  setText(line, kStates[state] ?? "Not connected");
  document.body.classList.toggle("stale", state === "reconnecting" || state === "busy");
}

function whyDenied(error, scope) {
  if (error.status === 403)
    return scope
      ? `This token may not see the scope ${scope}: use one of that scope, or of all.`
      : "This token may not see what the page shows: use another one.";
  return token.get()
    ? "nanoctrl does not know this token: it is mistyped, expired or revoked."
    : "This nanoctrl wants a token.";
}

function askForToken(why) {
  stop();
  token.forget();
  showConnection("none");
  $("overview").hidden = true;
  $("bar-end").hidden = true;
  $("sign-in").hidden = false;
  setText($("sign-in-why"), why);
  $("token").value = "";
  $("token").focus();
}

function stop() {
  follower?.stop();
  follower = null;
  known.clear();
}

function follow(scope) {
  stop();
  showConnection("connecting");
  const mine = new Follower(scope, {
    changed: () => mine === follower && drawSoon(),
    connection: (state) => {
      if (mine !== follower) return;
      showConnection(state);
      if (state !== "live") return;
      $("forget").hidden = token.get() === "";
      if (readAddress().scope !== mine.scope) writeAddress();
    },
    denied: (error, denied) => {
      if (mine !== follower) return;
      const why = whyDenied(error, error.status === 403 ? denied : "");
      // Start the next token at a scope that it may read.
      if (error.status === 403) history.replaceState(null, "", location.pathname);
      askForToken(why);
    },
  });
  follower = mine;
  mine.run();
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("token").value.trim();
  if (!token.isPossible(text)) {
    setText($("sign-in-why"), "This is no token: it has characters that none has.");
    return;
  }
  token.set(text);
  $("token").value = "";
  setText($("sign-in-why"), "");
  follow(readAddress().scope);
});
$("forget").addEventListener("click", () => askForToken("The token is forgotten."));
$("scope").addEventListener("change", () => {
  const scope = $("scope").value;
  follow(scope);
  writeAddress();
});
$("filter").addEventListener("input", readFilter);
$("tabs").addEventListener("keydown", moveInTabs);
for (const name of kViews) $(`tab-${name}`).addEventListener("click", () => select(name));
wide.addEventListener("change", () => select(view));
addEventListener("hashchange", () => {
  const address = readAddress();
  select(address.view);
  if (follower && address.scope && address.scope !== follower.scope) follow(address.scope);
});
document.addEventListener("visibilitychange", () => !document.hidden && follower?.refresh());
setInterval(drawLeases, 1000);

const begin = readAddress();
select(begin.view);
follow(begin.scope);
