"use strict";
// Polls one JSON document while somebody looks, and shows it. All texts of the server are set as text, never as HTML.

const EVERY_MS = 2000;       // between two polls
const ANSWER_MAX_MS = 15000; // for an answer
const KEPT = 61;             // samples of the sparklines: two minutes
const RATE_SAMPLES = 5;      // rates are those of the last 10 s
const MINUTE_SAMPLES = 30;
const CLASSES_SHOWN = 20;

// The page may be mounted anywhere, and its own address may lack the last slash.
const BASE = document.currentScript.src;
const $ = (id) => document.getElementById(id);
const samples = [];
let timer, loading = false, place = null, offset = 0, total = 0, allClasses = false;

// --- elements ---------------------------------------------------------------------------------------------------

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}
function setText(node, value) {
  const text = String(value);
  if (node.textContent !== text) node.textContent = text;
}
function setClass(node, name) { if (node.className !== name) node.className = name; }
function button(text, action, name) {
  const made = element("button", name, text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}
// Keeps the element of each item, so that what a person points at stays.
function sync(parent, items, key, make, fill) {
  const known = parent.known || (parent.known = new Map());
  const gone = new Set(known.keys());
  items.forEach((item, index) => {
    const id = String(key(item));
    gone.delete(id);
    let node = known.get(id);
    if (!node) known.set(id, node = make(item));
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] || null);
    fill(node, item);
  });
  for (const id of gone) { known.get(id).remove(); known.delete(id); }
}
function row(...names) {
  return () => {
    const made = element("tr");
    for (const name of names) made.append(element("td", name));
    return made;
  };
}
function fillCells(node, ...texts) {
  texts.forEach((text, index) => { if (text !== null) setText(node.children[index], text); });
}
function share(cell, part) {
  if (!cell.firstChild) cell.append(element("span"));
  const width = `${Math.max(0, Math.min(100, part * 100)).toFixed(1)}%`;
  if (cell.firstChild.style.width !== width) cell.firstChild.style.width = width;
}

// --- numbers ----------------------------------------------------------------------------------------------------

function count(n) { return n === undefined || n === null ? "–" : Math.round(n).toLocaleString("en"); }
function short(n) {
  if (n < 10) return n === 0 ? "0" : n.toFixed(1);
  return n < 10000 ? Math.round(n).toLocaleString("en") : n < 1e6 ? `${(n / 1e3).toFixed(1)} k` : `${(n / 1e6).toFixed(1)} M`;
}
const whole = (n) => n < 10 ? count(n) : short(n);
function bytes(n) {
  if (n === undefined || n === null) return "–";
  return n < 1 << 30 ? `${(n / (1 << 20)).toFixed(n < 100 << 20 ? 1 : 0)} MB` : `${(n / (1 << 30)).toFixed(2)} GB`;
}
function time(s) {
  if (s === undefined || s === null || Number.isNaN(s)) return "–";
  if (s === 0) return "0 ms";
  if (s < 0.9995) return `${s * 1000 < 9.95 ? (s * 1000).toFixed(1) : Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}
function when(at) {
  const s = at - Date.now() / 1000;
  return s > 0 ? `in ${time(s)}` : `${time(-s)} ago`;
}
const sum = (list) => list.reduce((all, one) => all + one, 0);
// A quantile of a histogram, by the place within its bucket; undefined without values.
function quantile(buckets, q, bounds) {
  const all = sum(buckets);
  if (all <= 0) return undefined;
  let below = 0;
  for (let i = 0; i < buckets.length; i++) {
    if (below + buckets[i] >= q * all && buckets[i] > 0) {
      const from = i ? bounds[i - 1] : 0;
      if (i >= bounds.length) return from;
      return from + (bounds[i] - from) * (q * all - below) / buckets[i];
    }
    below += buckets[i];
  }
  return bounds[bounds.length - 1];
}
const minus = (a, b) => b ? a.map((n, i) => Math.max(0, n - b[i])) : a;

// --- samples ----------------------------------------------------------------------------------------------------

function addSample(now) {
  const last = samples[samples.length - 1];
  // A server that has started anew counts from zero.
  if (last && (last.server.pid !== now.server.pid || last.server.age_s > now.server.age_s + 5)) samples.length = 0;
  now.workers.sort((a, b) => a.worker - b.worker || a.pid - b.pid);
  samples.push(now);
  if (samples.length > KEPT) samples.shift();
}
const before = (samplesAgo, index = samples.length - 1) => samples[Math.max(0, index - samplesAgo)];
function rate(read, index = samples.length - 1) {
  const now = samples[index], then = before(RATE_SAMPLES, index);
  const seconds = now.at - then.at;
  return seconds > 0 ? Math.max(0, read(now) - read(then)) / seconds : 0;
}
const requests = (one) => sum(Object.values(one.web.responses));
const errors = (one) => one.web.responses["5xx"];
const jobs = (one) => sum(one.jobs.classes.map((c) => c.done + c.failed));
const failed = (one) => sum(one.jobs.classes.map((c) => c.failed));
const records = (one) => sum(one.streams.map((t) => t.records));
const lag = (one) => sum(one.streams.map((t) => t.lag));
const memory = (one) => sum(one.processes.map((p) => p.proportional ?? p.resident));
const waiting = (one) => one.jobs.store ? sum(one.jobs.store.queues.map((q) => q.size)) : 0;
const queued = (one) => sum(one.workers.map((w) => w.queued || 0));
const windowed = (read, q, index, length) =>
  quantile(minus(read(samples[index]), index > 0 ? read(before(length, index)) : null), q, samples[index].bounds_s);

// --- tiles ------------------------------------------------------------------------------------------------------

const series = (read) => samples.map((_, index) => read(index));
const RATE = (read) => (index) => rate(read, index);
const TILES = [
  ["web", "Requests / s", RATE(requests), short],
  ["web", "Response p50", (i) => windowed((s) => s.web.duration.buckets, 0.5, i, RATE_SAMPLES), time],
  ["web", "Response p99", (i) => windowed((s) => s.web.duration.buckets, 0.99, i, RATE_SAMPLES), time],
  ["web", "Queue time p99", (i) => windowed((s) => s.web.queue_time.buckets, 0.99, i, RATE_SAMPLES), time],
  ["web", "5xx / s", RATE(errors), short, (v) => v > 0],
  ["jobs", "Jobs / s", RATE(jobs), short],
  ["jobs", "Failed jobs / s", RATE(failed), short, (v) => v > 0],
  ["jobs", "Jobs waiting", (i) => waiting(samples[i]), whole],
  ["streams", "Records / s", RATE(records), short],
  ["streams", "Lag", (i) => lag(samples[i]), whole],
  [null, "Memory", (i) => memory(samples[i]), bytes],
];

function showTiles(now) {
  const shown = TILES.filter(([role]) => !role || now.server.roles.includes(role));
  sync($("tiles"), shown, (tile) => tile[1], ([, name]) => {
    const made = element("div", "tile");
    made.append(element("div", "name", name), element("div", "value"));
    const chart = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    chart.setAttribute("viewBox", `0 0 ${KEPT - 1} 26`);
    chart.setAttribute("preserveAspectRatio", "none");
    chart.setAttribute("aria-hidden", "true");
    chart.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
    made.append(chart);
    return made;
  }, (node, [, , read, format, alarm]) => {
    const values = series(read);
    const last = values[values.length - 1];
    setText(node.children[1], last === undefined ? "–" : format(last));
    setClass(node, alarm && alarm(last) ? "tile alarm" : "tile");
    const known = values.map((v) => v || 0);
    const top = Math.max(...known) || 1;
    const points = known.map((v, i) => `${KEPT - known.length + i},${(24.5 - 23 * v / top).toFixed(1)}`);
    node.querySelector("polyline").setAttribute("points", points.join(" "));
  });
}

// --- sections ---------------------------------------------------------------------------------------------------

const STATE = { ready: "good", running: "good", booting: "warn", asked: "warn", starting: "warn", stopping: "warn", restarting: "warn" };

// Ends of workers in words; the last ones are failures.
const ENDS = { asked: "asked to stop", restart: "replaced by a restart", memory: "above the memory limit", died: "died",
  hung: "hung", killed: "did not stop in time", boot: "did not become ready" };
const FAILURES = ["died", "hung", "killed", "boot"];

function showProblems(texts, name) {
  sync($("problems"), [...new Set(texts)], (text) => text, () => element("p"), (node, text) => {
    setText(node, text);
    setClass(node, `notice ${name}`);
  });
}
const ENDED = "Your session has ended. Run `chaton dashboard` for a new link.";
// What is shown is what the server was like when it last answered.
function showAway(why) {
  $("state").hidden = false;
  setText($("state"), why === ENDED ? "session ended" : "no answer");
  setClass($("state"), "pill bad");
  showProblems([samples.length ? `${why} The page shows how it was at ${$("updated").textContent}.` : why], "bad");
  document.body.className = "away";
}
function showHead(now) {
  document.body.className = "";
  const facts = now.server.facts;
  document.title = `${facts.tag || "Chaton"} · Chaton`;
  setText($("tag"), facts.tag || "Chaton");
  const ready = now.ready.status === "ready", live = now.live.status === "live";
  $("state").hidden = false;
  setText($("state"), !live ? "hung" : ready ? "ready" : now.ready.state === "running" ? "not ready" : now.ready.state);
  setClass($("state"), `pill ${ready && live ? "good" : live && now.ready.state !== "running" ? "warn" : "bad"}`);
  setText($("facts"), [facts.environment, `up ${time(now.server.age_s)}`, `pid ${now.server.pid}`, `Chaton ${facts.version}`,
    `Ruby ${facts.ruby}`].join(" · "));
  // While it starts or stops, roles are not ready as a matter of course.
  showProblems([...now.live.reasons, ...now.ready.reasons], live && now.ready.state !== "running" ? "warn" : "bad");
  $("phased-restart").disabled = now.ready.state !== "running";
}

function showWorkers(now) {
  const ends = Object.entries(now.server.exits).filter(([, n]) => n);
  setText($("exits"), ends.length ? `Ended since the start: ${ends.map(([why, n]) => `${count(n)} ${ENDS[why] || why}`).join(", ")}.` : "");
  setClass($("exits"), FAILURES.some((why) => now.server.exits[why]) ? "warn" : "soft");
  sync($("workers"), now.workers, (w) => `${w.worker} ${w.pid}`, (w) => {
    const made = element("div", "worker");
    const name = element("div");
    name.append(element("strong", "", `Worker ${w.worker}`), " ", element("span", "pill"), element("div", "soft"));
    const act = element("div", "bar");
    act.append(button("Backtraces", () => backtraces(w.worker)),
      button("Restart", () => ask(`Replace worker ${w.worker} by a new process with the same code?`,
        () => post("restart-worker", { worker: w.worker }, `Worker ${w.worker} is being replaced.`), "Restart")));
    made.append(name, element("div", "figures"), element("ul"), act);
    return made;
  }, (node, w) => {
    const [name, figures, list, act] = node.children;
    setText(name.children[1], w.state);
    setClass(name.children[1], `pill ${STATE[w.state] || ""}`);
    setText(name.children[2], `${w.roles.join(", ")} · pid ${w.pid ?? "–"} · ${time(w.age_s)}`);
    const facts = [["memory", bytes(w.resident)], ["threads", `${w.busy ?? "–"}/${w.threads ?? "–"}`]];
    if (w.roles.includes("web")) facts.push(["queued", count(w.queued)], ["open connections", count(w.connections)], ["served", count(w.requests_total)]);
    if (w.roles.includes("streams")) facts.push(["groups", `${w.groups_joined}/${w.groups}`]);
    sync(figures, facts, ([label]) => label, ([label]) => {
      const made = element("span");
      made.append(element("b"), ` ${label}`);
      return made;
    }, (one, [, value]) => setText(one.firstChild, value));
    const units = w.running ? [...w.running].sort((a, b) => b.age_ms - a.age_ms) : [];
    const shown = units.slice(0, 8).map((u) => ({ id: `${u.role} ${u.id}`, what: u.what, age: time(u.age_ms / 1000), late: u.age_ms > 10000 }));
    if (units.length > 8) shown.push({ id: "more", what: `and ${units.length - 8} more`, age: "" });
    if (!w.running && w.state === "ready") shown.push({ id: "mute", what: w.hogged ? "does not answer: one unit of work keeps Ruby's lock" : "has not answered in time", age: "", late: true });
    if (w.running && !units.length) shown.push({ id: "idle", what: "idle", age: "", idle: true });
    sync(list, shown, (u) => u.id, () => {
      const made = element("li");
      made.append(element("span", "what"), element("span", "n"));
      return made;
    }, (one, u) => {
      setText(one.children[0], u.what);
      if (one.children[0].title !== u.what) one.children[0].title = u.what;
      setText(one.children[1], u.age);
      setClass(one, u.idle ? "soft" : u.late ? "warn" : "");
    });
    for (const one of act.children) one.disabled = w.state !== "ready";
  });
}

function showWeb(now) {
  $("web").hidden = !now.server.roles.includes("web");
  const all = requests(now) || 1;
  const classes = Object.keys(now.web.responses).filter((c) => c !== "1xx" || now.web.responses[c]);
  sync($("responses"), [...classes, "shed (503)"], (c) => c, row("", "n", "n", "share"), (node, name) => {
    const read = (one) => name in one.web.responses ? one.web.responses[name] : one.web.shed;
    fillCells(node, name, short(rate(read)), count(read(now)), null);
    share(node.children[3], read(now) / all);
    setClass(node, name === "5xx" && rate(read) > 0 ? "bad" : "");
  });
  const last = samples.length - 1;
  sync($("times"), [["Response", "duration"], ["Queue time", "queue_time"]], ([name]) => name, row("", "n", "n", "n"), (node, [name, field]) => {
    const at = (q) => time(windowed((s) => s.web[field].buckets, q, last, MINUTE_SAMPLES));
    fillCells(node, name, at(0.5), at(0.9), at(0.99));
  });
}

const PLACES = [["retry", "Retries", "retries"], ["dead", "Dead", "dead"], ["scheduled", "Scheduled", "scheduled"]];

function showJobs(now) {
  $("jobs").hidden = !now.server.roles.includes("jobs") && !now.server.facts.store;
  if ($("jobs").hidden) return;
  const store = now.jobs.store;
  setText($("store"), store ? `${count(store.sets.in_flight)} in flight · ${now.server.facts.store || ""}` : "The store of the jobs does not answer.");
  setClass($("store"), store ? "soft" : "bad");
  const queues = store ? store.queues : [];
  sync($("queues"), queues, (q) => q.name, (q) => {
    const made = row("", "n", "n", "act")();
    made.children[0].append(button(q.name, () => open(`queue:${q.name}`)), " ", element("span", "pill warn", "paused"));
    made.children[3].append(button("", () => post(made.paused ? "resume" : "pause", { queue: q.name }, `Queue ${q.name} is ${made.paused ? "resumed" : "paused"}.`)));
    return made;
  }, (node, q) => {
    node.paused = q.paused;
    node.children[0].children[1].hidden = !q.paused;
    fillCells(node, null, count(q.size), time(q.latency_s), null);
    setText(node.children[3].firstChild, q.paused ? "Resume" : "Pause");
  });
  sync($("places"), PLACES, ([name]) => name, ([name]) => button("", () => open(place === name ? null : name)), (node, [name, label, set]) => {
    setText(node, `${label} ${count(store && store.sets[set])}`);
    setClass(node, name === "dead" && store && store.sets.dead ? "danger" : "");
    node.setAttribute("aria-pressed", String(place === name));
  });
  total = size(store);
  showListHead();
  const classes = [...now.jobs.classes].sort((a, b) => b.done + b.failed - a.done - a.failed);
  const then = new Map(before(RATE_SAMPLES).jobs.classes.map((c) => [`${c.class} ${c.queue}`, c]));
  const seconds = now.at - before(RATE_SAMPLES).at;
  sync($("classes"), allClasses ? classes : classes.slice(0, CLASSES_SHOWN), (c) => `${c.class} ${c.queue}`,
    row("", "soft", "n", "n", "n", "n", "n", "n"), (node, c) => {
      const old = then.get(`${c.class} ${c.queue}`) || { done: 0, failed: 0 };
      const p = (field, q) => time(quantile(c[field].buckets, q, now.bounds_s));
      fillCells(node, c.class, c.queue, short(seconds > 0 ? Math.max(0, c.done + c.failed - old.done - old.failed) / seconds : 0),
        count(c.done), count(c.failed), p("run_time", 0.5), p("run_time", 0.99), p("latency", 0.99));
      setClass(node.children[4], c.failed ? "n bad" : "n");
    });
  $("more-classes").hidden = classes.length <= CLASSES_SHOWN;
  setText($("more-classes"), allClasses ? "Fewer" : `All ${classes.length}`);
}

function showStreams(now) {
  $("streams").hidden = !now.server.roles.includes("streams");
  const before10 = new Map(before(RATE_SAMPLES).streams.map((t) => [`${t.topic} ${t.group}`, t]));
  const seconds = now.at - before(RATE_SAMPLES).at;
  const readers = now.workers.filter((w) => w.roles.includes("streams"));
  setText($("groups"), `${sum(readers.map((w) => w.groups_joined || 0))} of ${sum(readers.map((w) => w.groups || 0))} consumer groups of the workers are joined.`);
  setClass($("groups"), "soft");
  sync($("topics"), now.streams, (t) => `${t.topic} ${t.group}`, row("", "soft", "n", "n", "n", "n", "n", "n", "n"), (node, t) => {
    const old = before10.get(`${t.topic} ${t.group}`) || { records: 0 };
    fillCells(node, t.topic, t.group, short(seconds > 0 ? Math.max(0, t.records - old.records) / seconds : 0), count(t.records),
      count(t.lag), t.lag ? time(t.lag_age_s) : "–", count(t.retries), count(t.dead_letters), count(t.rebalances));
    setClass(node.children[7], t.dead_letters ? "n bad" : "n");
  });
}

function showMemory(now) {
  const most = Math.max(...now.processes.map((p) => p.resident), 1);
  sync($("processes"), now.processes, (p) => p.name, row("", "n", "n", "n", "share"), (node, p) => {
    fillCells(node, p.name, bytes(p.resident), bytes(p.proportional), bytes(p.private), null);
    share(node.children[4], p.resident / most);
  });
  sync($("collections"), now.workers.filter((w) => w.heap), (w) => `${w.worker} ${w.pid}`, row("", "n", "n", "n", "n", "n", "n", "n", ""), (node, w) =>
    fillCells(node, `worker ${w.worker}`, count(w.heap.gc_minor_total), count(w.heap.gc_major_total), count(w.heap.gc_major_inside_total),
      time(w.heap.gc_inside_ns / 1e9), count(w.heap.live_slots), `${(w.heap.gc_share_ppm / 1e4).toFixed(1)} %`,
      bytes(w.heap.eden_bytes), w.heap.eden_reason));
}

// --- lists of jobs ----------------------------------------------------------------------------------------------

function size(store) {
  if (!store || !place) return 0;
  const found = PLACES.find(([name]) => name === place);
  if (found) return store.sets[found[2]];
  return (store.queues.find((q) => `queue:${q.name}` === place) || { size: 0 }).size;
}
function open(name) {
  place = name;
  offset = 0;
  $("list").hidden = !name;
  if (name) list();
  if (samples.length) show();
}
async function list() {
  if (!place) return;
  const asked = place, from = offset;
  try {
    const page = await get(`jobs.json?place=${encodeURIComponent(asked)}&offset=${from}`);
    if (asked !== place || from !== offset) return;
    if (!page.jobs.length && offset) { offset = Math.max(0, offset - page.page); return list(); }
    showList(page);
  } catch (error) { notice(error.message, "bad"); }
}
function showListHead() {
  if (!place) return;
  const title = (PLACES.find(([name]) => name === place) || [0, place.replace("queue:", "Queue ")])[1];
  const shown = $("entries").children.length;
  setText($("list-title"), `${title}: ${total ? `${count(offset + 1)}–${count(Math.min(offset + shown, total))} of ${count(total)}` : "none"}`);
  $("newer").disabled = offset === 0;
  $("older").disabled = offset + shown >= total;
  $("retry-all").hidden = place.startsWith("queue:");
  $("retry-all").disabled = $("delete-all").disabled = !total;
}
function showList(page) {
  sync($("entries"), page.jobs, (job) => `${place} ${job.jid} ${job.at}`, (job) => {
    const made = element("div", "entry"), text = element("div"), act = element("div", "bar");
    text.append(element("div", "class"), element("div", "facts"));
    const from = place;
    if (!from.startsWith("queue:")) act.append(button("Retry", () => postJob("retry", from, job, "goes back to its queue")));
    act.append(button("Delete", () => ask(`Delete ${job.class || "this entry"} ${job.jid} for good?`, () => postJob("delete", from, job, "is deleted"), "Delete"), "danger"));
    made.append(text, act, element("div", "error"));
    return made;
  }, (node, job) => {
    setText(node.firstChild.children[0], job.class || "no job document");
    const facts = [job.queue, job.jid];
    if (job.at) facts.push(`${place === "dead" ? "died" : "due"} ${when(job.at)}`);
    if (!job.at && job.enqueued_at) facts.push(`enqueued ${when(job.enqueued_at)}`);
    if (job.failures) facts.push(`failed ${job.failures} ×`);
    setText(node.firstChild.children[1], facts.filter(Boolean).join(" · "));
    setText(node.children[2], job.error || "");
  });
  showListHead();
}

// --- actions ----------------------------------------------------------------------------------------------------

async function call(url, options) {
  let answer;
  try {
    answer = await fetch(new URL(url, BASE), { ...options, signal: AbortSignal.timeout(ANSWER_MAX_MS), cache: "no-store" });
  } catch { throw new Error("The server does not answer."); }
  if (answer.status === 401) throw new Error(ENDED);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `The server answered ${answer.status}.`);
  return body;
}
const get = (url) => call(url, {});
const action = (name, parameters) => call(`actions/${name}?${new URLSearchParams(parameters)}`, { method: "POST" });

async function post(name, parameters, done) {
  try {
    const answer = await action(name, parameters);
    if (done) notice(done);
    poll();
    list();
    return answer;
  } catch (error) { notice(error.message, "bad"); }
}
const postJob = (name, from, job, done) =>
  post(name, { place: from, jid: job.jid, offset }, `${job.class || "The entry"} ${job.jid} ${done}.`);

// As many as there are now, so that jobs that fail again in the meantime are not sent back twice.
async function all(name, verb) {
  const from = place, before = total;
  let left = before;
  try {
    while (left > 0) {
      const { count: done } = await action(`${name}-all`, { place: from, count: left });
      if (!done) break;
      left -= done;
      notice(`${count(before - left)} of ${count(before)} jobs ${verb}.`);
    }
  } catch (error) { notice(error.message, "bad"); }
  poll();
  list();
}
async function backtraces(worker) {
  $("threads-list").replaceChildren(element("p", "soft", "asking…"));
  setText($("threads-title"), `Worker ${worker}: what its threads do`);
  $("threads").showModal();
  try {
    const { threads } = await action("backtraces", { worker });
    // Chaton's own threads come last; they are nearly always the same.
    const own = (t) => t.thread === "main" || t.thread === "chaton support";
    threads.sort((a, b) => own(a) - own(b));
    $("threads-list").replaceChildren(...threads.flatMap((t) => {
      const head = element("div");
      head.append(element("strong", "", t.thread), ` ${t.status}`);
      return [head, element("pre", "", t.backtrace.join("\n"))];
    }));
  } catch (error) { $("threads-list").replaceChildren(element("p", "bad", error.message)); }
}
let answered;
function ask(text, yes, label = "Yes") {
  setText($("question-text"), text);
  setText($("question-yes"), label);
  answered = yes;
  $("question").showModal();
}
function notice(text, name = "") {
  setText($("notice"), text);
  setClass($("notice"), `notice ${name}`);
  $("notice").hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => { $("notice").hidden = true; }, 10000);
}

// --- polling ----------------------------------------------------------------------------------------------------

function show() {
  const now = samples[samples.length - 1];
  for (const one of [showHead, showTiles, showWorkers, showWeb, showJobs, showStreams, showMemory]) one(now);
}
async function poll() {
  clearTimeout(timer);
  if (loading || document.hidden) return;
  loading = true;
  try {
    addSample(await get("dashboard.json"));
    show();
    setText($("updated"), new Date().toLocaleTimeString());
    list();
  } catch (error) {
    showAway(error.message);
  } finally {
    loading = false;
    timer = setTimeout(poll, EVERY_MS);
  }
}
document.addEventListener("visibilitychange", poll);
$("phased-restart").addEventListener("click", () => ask("Load the code on disk and replace the workers one by one?",
  () => post("phased-restart", {}, "The workers are replaced one by one."), "Restart"));
$("retry-all").addEventListener("click", () => ask(`Send all ${count(total)} jobs of this list back to their queues?`, () => all("retry", "went back to their queues"), "Retry all"));
$("delete-all").addEventListener("click", () => ask(`Delete all ${count(total)} jobs of this list for good?`, () => all("delete", "are deleted"), "Delete all"));
$("newer").addEventListener("click", () => { offset = Math.max(0, offset - 50); list(); });
$("older").addEventListener("click", () => { offset += 50; list(); });
$("more-classes").addEventListener("click", () => { allClasses = !allClasses; show(); });
$("question-no").addEventListener("click", () => $("question").close());
$("question-yes").addEventListener("click", () => { $("question").close(); answered(); });
$("threads-close").addEventListener("click", () => $("threads").close());
poll();
