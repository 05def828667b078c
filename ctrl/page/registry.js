// Requests to nanoctrl, and a follower of one scope: lists first, then changes. Does not touch the document.

const kTokenKey = "nanoctrl.token";
// Leases and traffic change without events, so lists are read again. A lease is renewed when two thirds are left;
// reading this often keeps the displayed lease from looking too short.
const kRefreshMs = 5000;
const kRefreshMinMs = 1000;
const kRefreshesPerLease = 6;
const kWatchMs = 25000;
const kAnswerMs = 10000; // beyond the time that the request itself waits
const kBackoffMs = 500;
const kBackoffMaxMs = 10000;
const kSingleReads = 16; // changed peers that are read one by one; for more, the list is read
const kHistory = [200, 50, 10, 3, 1]; // numbers of earlier changes to request, until nanoctrl still has them
export const kEventsKept = 500;

// A failed request. `status` is 0 if there was no reply.
export class AnswerError extends Error {
  constructor(status, message, retryAfterMs = 0) {
    super(message);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

// The token of this tab. It is sent as a header and is in no URL.
export const token = {
  get: () => sessionStorage.getItem(kTokenKey) ?? "",
  set: (text) => sessionStorage.setItem(kTokenKey, text),
  forget: () => sessionStorage.removeItem(kTokenKey),
  // Headers can carry ASCII only.
  isPossible: (text) => /^[\x21-\x7e]+$/.test(text),
};

function retryAfterMs(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0;
}

// Returns the JSON reply of a route. Aborted by `signal`, or by a timeout.
async function ask(route, parameters, signal, waitMs = 0) {
  const query = new URLSearchParams(parameters).toString();
  const request = new AbortController();
  const stop = () => request.abort();
  signal.addEventListener("abort", stop);
  const timer = setTimeout(stop, waitMs + kAnswerMs);
  try {
    const bearer = token.get();
    const response = await fetch(query ? `${route}?${query}` : route, {
      headers: bearer ? { Authorization: `Bearer ${bearer}` } : {},
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: request.signal,
    });
    if (response.ok) return await response.json();
    const told = await response.json().catch(() => ({}));
    throw new AnswerError(response.status, String(told.message ?? ""), retryAfterMs(response));
  } catch (error) {
    if (error instanceof AnswerError || signal.aborted) throw error;
    throw new AnswerError(0, String(error.message ?? error));
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

// Waits until the time is over, `signal` aborts, or the browser is online again.
function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

async function askAll(route, list, scope, signal) {
  const items = [];
  let first = null;
  let after = "";
  do {
    const page = await ask(route, after ? { scope, after } : { scope }, signal);
    const at = performance.now();
    for (const item of page[list]) items.push({ item, at });
    first ??= page;
    after = page.next ?? "";
  } while (after);
  return { items, revision: first.revision, epoch: first.server_epoch };
}

// Bytes and calls per second, from the difference of two reports. Reports are rarer than replies: an unchanged
// value keeps its rate until the rate is old. In the order sent, received, direct, calls.
class Rates {
  #last = new Map();

  of(link, at) {
    if (link.state === undefined) return null;
    const total = [link.sent_bytes, link.received_bytes, link.direct_bytes ?? 0, link.calls];
    const key = `${link.from} ${link.to}`;
    const last = this.#last.get(key);
    // Smaller numbers mean a new connection.
    if (!last || total.some((value, i) => value < last.total[i])) {
      this.#last.set(key, { total, at, rate: null });
      return null;
    }
    const seconds = (at - last.at) / 1000;
    if (total.some((value, i) => value > last.total[i])) {
      last.rate = total.map((value, i) => (value - last.total[i]) / seconds);
      last.total = total;
      last.at = at;
    } else if (seconds > (3 * kRefreshMs) / 1000) {
      last.rate = [0, 0, 0];
      last.at = at;
    }
    return last.rate;
  }
  keep(keys) {
    for (const key of this.#last.keys()) if (!keys.has(key)) this.#last.delete(key);
  }
}

// One scope as nanoctrl has it, kept up to date until stop(). Calls
//   changed()            after a change of the data
//   connection(state)    "connecting", "live", "reconnecting" or "busy"
//   denied(error, scope) when nanoctrl requires another token; the follower has ended
export class Follower {
  scopes = [];
  status = {};
  revision = 0;
  peers = new Map(); // by name: {item, at}
  links = []; // {item, rate}
  events = []; // newest first: {item, when, number}; `when` is a date, or "earlier" (before the page was opened)

  #scope;
  #callbacks;
  #stop = new AbortController();
  #watch = new AbortController();
  #rates = new Rates();
  #since = null;
  #refreshAt = 0;
  #eventCount = 0;
  #noted = 0; // revision of the newest event

  // Without a scope: "default", or the first scope that the token may read.
  constructor(scope, callbacks) {
    this.#scope = scope;
    this.#callbacks = callbacks;
  }
  get scope() {
    return this.#scope;
  }
  stop() {
    this.#stop.abort();
    this.#watch.abort();
  }
  // Reads all lists now.
  refresh() {
    this.#refreshAt = 0;
    this.#watch.abort();
  }

  async run() {
    let failures = 0;
    while (!this.#stop.signal.aborted) {
      try {
        await this.#step();
        failures = 0;
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        const told = error instanceof AnswerError;
        if (!told && this.#watch.signal.aborted) continue;
        if (!told) console.error(error); // not a reply of nanoctrl
        if (error.status === 401 || error.status === 403) {
          this.stop();
          this.#callbacks.denied(error, this.#scope);
          return;
        }
        if (error.status === 400 && this.#scope) this.#scope = ""; // invalid name: use an existing scope
        this.#callbacks.connection(error.status === 429 ? "busy" : "reconnecting");
        this.#refreshAt = 0;
        const backoff = Math.min(kBackoffMaxMs, kBackoffMs * 2 ** failures++);
        // Random, so that not all open pages reconnect to a restarted nanoctrl at once.
        await pause(error.retryAfterMs || backoff * (0.75 + Math.random() / 2), this.#stop.signal);
      }
    }
  }

  // Sequential, so that no reply overtakes another: lists when they are due, else changes.
  async #step() {
    const signal = this.#stop.signal;
    // While the page is hidden, only collect events.
    if (this.#since === null || (!document.hidden && performance.now() >= this.#refreshAt)) {
      if (!(await this.#readLists(signal))) return;
      this.#callbacks.connection("live");
    }
    const due = document.hidden ? kWatchMs : this.#refreshAt - performance.now();
    const waitMs = Math.round(Math.min(kWatchMs, Math.max(0, due)));
    const parameters = { scope: this.#scope, since: this.#since, wait_ms: waitMs };
    this.#watch = new AbortController();
    await this.#apply(await ask("v1/watch", parameters, this.#watch.signal, waitMs), signal);
    this.#callbacks.connection("live");
  }

  // Returns false if there is no scope yet.
  async #readLists(signal) {
    this.status = await ask("v1/status", {}, signal);
    this.scopes = (await ask("v1/scopes", {}, signal)).scopes.map((scope) => scope.scope).sort();
    if (!this.#scope) {
      this.#scope = this.scopes.includes("default") ? "default" : (this.scopes[0] ?? "");
      if (!this.#scope) {
        this.#callbacks.changed();
        this.#callbacks.connection("live");
        await pause(kRefreshMs, signal);
        return false;
      }
    }
    const peers = await askAll("v1/peers", "peers", this.#scope, signal);
    this.peers = new Map(peers.items.map((peer) => [peer.item.name, peer]));
    await this.#readLinks(signal);
    if (this.#since === null) {
      this.#since = peers.revision;
      await this.#readHistory(peers, signal);
    }
    this.revision = Math.max(peers.revision, this.#since);
    const often = Math.min(kRefreshMs, Math.max(kRefreshMinMs, this.status.ttl_ms / kRefreshesPerLease));
    // Read large lists less often: ten thousand peers are ten replies of a megabyte.
    this.#refreshAt = performance.now() + often * Math.max(1, Math.ceil(peers.items.length / 1000));
    this.#callbacks.changed();
    return true;
  }

  async #readLinks(signal) {
    const links = await askAll("v1/links", "links", this.#scope, signal);
    this.links = links.items.map(({ item, at }) => ({ item, rate: this.#rates.of(item, at) }));
    this.#rates.keep(new Set(this.links.map(({ item }) => `${item.from} ${item.to}`)));
  }

  // Reads events from before the page was opened, or from while it was disconnected, as far as nanoctrl's log
  // reaches back. They have no times.
  async #readHistory(head, signal) {
    const when = this.#noted === 0 ? "earlier" : "meanwhile";
    for (const changes of kHistory) {
      // nanoctrl's complete log begins at its epoch.
      const since = Math.max(head.revision - changes, this.#noted, changes === kHistory[0] ? head.epoch : 0);
      if (since >= head.revision) continue;
      const past = await ask("v1/watch", { scope: this.#scope, since, wait_ms: 0 }, signal);
      for (const event of past.events) if (event.revision <= head.revision) this.#note(event, when);
      if (!past.resync) return;
    }
  }

  async #apply(changes, signal) {
    if (changes.resync) {
      this.#since = null;
      return;
    }
    this.#since = changes.revision;
    this.revision = Math.max(this.revision, changes.revision);
    if (changes.events.length === 0) return;
    const when = new Date();
    const touched = new Set();
    let links = false;
    for (const event of changes.events) {
      if (!this.#note(event, when)) continue;
      const known = this.peers.get(event.name);
      links = true; // both_there of a link may have changed
      if (event.event === "registered" || event.event === "updated") {
        touched.add(event.name);
      } else if (event.event !== "links" && known && known.item.incarnation <= event.incarnation) {
        this.peers.delete(event.name);
      }
    }
    this.#callbacks.changed();
    if (changes.more || touched.size > kSingleReads) {
      this.#refreshAt = 0;
      return;
    }
    for (const name of touched) await this.#readPeer(name, signal);
    if (links) await this.#readLinks(signal);
    this.#callbacks.changed();
  }

  async #readPeer(name, signal) {
    try {
      const item = await ask(`v1/peers/${encodeURIComponent(name)}`, { scope: this.#scope }, signal);
      // Keeps the map in the order of names.
      const known = this.peers.has(name);
      this.peers.set(name, { item, at: performance.now() });
      if (!known) this.peers = new Map([...this.peers].sort(([a], [b]) => (a < b ? -1 : 1)));
    } catch (error) {
      if (error.status !== 404) throw error;
      this.peers.delete(name);
    }
  }

  // Returns false for an unknown kind of event.
  #note(item, when) {
    if (!["registered", "updated", "deregistered", "expired", "links"].includes(item.event)) return false;
    if (item.revision <= this.#noted) return true;
    this.#noted = item.revision;
    this.events.unshift({ item, when, number: ++this.#eventCount });
    if (this.events.length > kEventsKept) this.events.length = kEventsKept;
    return true;
  }
}
