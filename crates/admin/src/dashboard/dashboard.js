"use strict";
// Polls one JSON document while somebody looks, and shows it. All texts of the server are set as text, never as HTML.

const EVERY_MS = 2000;       // between two polls
const ANSWER_MAX_MS = 15000; // for an answer
const KEPT = 61;             // samples of the sparklines: two minutes
const RATE_SAMPLES = 5;      // rates are those of the last 10 s
const MINUTE_SAMPLES = 30;
const CLASSES_SHOWN = 20;
const PARTITIONS_SHOWN = 10;
const SEARCH_EVERY_MS = 10000; // a search of a list, which the store pays for
const LATE_MS = 10000;       // what runs for longer is marked
const FROZEN_S = 4;          // a worker that is silent for longer than two polls is shown in red
const RECENT_S = 600;        // the death of a worker is shown in red for so long

// The page may be mounted anywhere, and its own address may lack the last slash.
const BASE = document.currentScript.src;
const $ = (id) => document.getElementById(id);
const samples = [];
// How long the curves are, which of the server's points they need, and the longest distance of two that are joined (s).
const SPANS = { "2 min": { seconds: 120, kept: "hour", gap: 25 }, "1 h": { seconds: 3600, kept: "hour", gap: 25 },
  "24 h": { seconds: 86400, kept: "day", gap: 150 } };
const past = { hour: { names: [], points: [], every_s: 10, max: 360, asked: 0 }, day: { names: [], points: [], every_s: 60, max: 1440, asked: 0 } };
let span = "2 min";
let timer, loading = false, place = null, offset = 0, total = 0, allClasses = false, allPartitions = false, lastQueues = [];
// Of the open list: where the next part begins, where the parts before this one do, and what is searched for.
let batchesShown = false, batchesAt = 0, cronsAt = 0, crons = [], listedAt = 0, next = null, earlier = [], find = { filter: "", group: null, grouped: false };

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
  // Of an empty table not even the head is shown.
  if (parent.tagName === "TBODY") parent.parentElement.hidden = !items.length;
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
  if (n === undefined || n === null) return "–";
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
const clock = (at) => new Date(at * 1000).toLocaleTimeString();
function when(at) {
  const s = at - Date.now() / 1000;
  return s > 0 ? `in ${time(s)}` : `${time(-s)} ago`;
}
// A text of a job or an error. What turns the direction of writing could make it look like another one; it is shown
// as its number (Unicode Technical Report 36, 2.5: the characters of UAX 9, and other invisible ones).
function plain(text, lines = false) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (one) =>
    lines && one === "\n" || one === "\t" ? one : one === "\n" ? " ⏎ " : `‹U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}
const sum = (list) => list.reduce((all, one) => all + one, 0);
// The bucket that has a quantile of a histogram; undefined without values. Where in the bucket it is was not measured.
function quantile(buckets, q) {
  const all = sum(buckets);
  if (all <= 0) return undefined;
  let below = 0;
  return buckets.findIndex((n) => (below += n) >= q * all && n > 0);
}
// The bounds of a bucket in words: "under 1 ms", "5–10 ms", "1–5 min", "over 5 min".
function range(bucket) {
  if (bucket === undefined || bucket === null) return "–";
  const bounds = samples[samples.length - 1].bounds_s;
  const from = bounds[bucket - 1], to = bounds[bucket];
  const [unit, factor] = (to ?? from) < 1 ? ["ms", 1000] : (to ?? from) > 60 ? ["min", 1 / 60] : ["s", 1];
  const number = (s) => Number((s * factor).toPrecision(3));
  if (from === undefined) return `under ${number(to)} ${unit}`;
  return to === undefined ? `over ${number(from)} ${unit}` : `${number(from)}–${number(to)} ${unit}`;
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
  return seconds > 0 ? Math.max(0, read(now) - read(then)) / seconds : undefined;
}
const requests = (one) => sum(Object.values(one.web.responses));
const errors = (one) => one.web.responses["5xx"];
const jobs = (one) => sum(one.jobs.classes.map((c) => c.done + c.failed));
const failed = (one) => sum(one.jobs.classes.map((c) => c.failed));
const records = (one) => sum(one.streams.map((t) => t.records));
const lag = (one) => sum(one.streams.map((t) => t.lag));
const memory = (one) => sum(one.processes.map((p) => p.proportional ?? p.resident));
const waiting = (one) => one.jobs.store ? sum(one.jobs.store.queues.map((q) => q.size)) : undefined;
const queued = (one) => sum(one.workers.map((w) => w.queued || 0));
const windowed = (read, q, index, length) =>
  quantile(minus(read(samples[index]), index > 0 ? read(before(length, index)) : null), q);

// --- tiles ------------------------------------------------------------------------------------------------------

const RATE = (read) => (index) => rate(read, index);
const QUANTILE = (field, q) => (i) => i === 0 ? undefined : windowed((s) => s.web[field].buckets, q, i, RATE_SAMPLES);
const TILES = [
  { role: "web", name: "Requests / s", key: "requests", read: RATE(requests), format: short },
  { role: "web", name: "Response p50", key: "p50", read: QUANTILE("duration", 0.5), format: range },
  { role: "web", name: "Response p99", key: "p99", read: QUANTILE("duration", 0.99), format: range },
  { role: "web", name: "Queue time p99", key: "queue_p99", read: QUANTILE("queue_time", 0.99), format: range },
  { role: "web", name: "5xx / s", key: "errors", read: RATE(errors), format: short, alarms: true },
  { role: "jobs", name: "Jobs / s", key: "jobs", read: RATE(jobs), format: short },
  { role: "jobs", name: "Failed jobs / s", key: "failed", read: RATE(failed), format: short, alarms: true },
  { role: "jobs", name: "Jobs waiting", key: "waiting", read: (i) => waiting(samples[i]), format: whole, size: true },
  { role: "streams", name: "Records / s", key: "records", read: RATE(records), format: short },
  { role: "streams", name: "Lag", key: "lag", read: (i) => lag(samples[i]), format: whole },
  { name: "Memory", key: "memory", read: (i) => memory(samples[i]), format: bytes },
];
// Of the last requests nothing is said where there were none; a size exists always, but may not be known.
const shownValue = (tile, v) => v !== undefined ? tile.format(v) : tile.size ? "unknown" : "–";

// Points of a tile, each a time and a value, oldest first.
function points(tile, now) {
  const { seconds, kept } = SPANS[span], from = now.at - seconds, found = [];
  const index = past[kept].names.indexOf(tile.key), live = span === "2 min";
  const until = live ? samples[0].at : now.at;
  for (const [at, values] of past[kept].points) if (at >= from && at < until) found.push([at, values[index] ?? undefined]);
  if (live) samples.forEach((one, i) => { if (one.at >= from) found.push([one.at, tile.read(i)]); });
  return found;
}
function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function makeTile(tile) {
  const made = element("div", "tile"), chart = element("div", "chart"), axis = element("div", "axis");
  const drawing = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawing.append(svg("path", {}), svg("line", { y1: 0, y2: 100 }));
  chart.append(drawing, element("span", "top"));
  chart.tabIndex = 0;
  chart.setAttribute("role", "slider");
  chart.setAttribute("aria-label", `${tile.name}, over time`);
  axis.append(element("span"), element("span", "", "now"));
  made.append(element("div", "name", tile.name), element("div", tile.format === range ? "value range" : "value"), chart, axis);
  const move = (at) => { made.at = at; drawTile(made, tile); };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    move(made.from + (event.clientX - box.left) / box.width * (made.to - made.from));
  });
  for (const end of ["pointerleave", "blur"]) chart.addEventListener(end, () => move(null));
  chart.addEventListener("keydown", (event) => {
    const list = made.list, last = list.length - 1, index = made.at === null ? last + 1 : nearest(list, made.at);
    const next = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") move(null);
    if (next === undefined || last < 0) return;
    event.preventDefault();
    move(list[Math.max(0, Math.min(last, next))][0]);
  });
  made.at = null;
  return made;
}
const nearest = (list, at) => list.reduce((best, one, i) => Math.abs(one[0] - at) < Math.abs(list[best][0] - at) ? i : best, 0);
function drawTile(node, tile) {
  const [, value, chart, axis] = node.children, [drawing, top] = chart.children, [path, line] = drawing.children;
  const { list, from, to } = node, isRange = tile.format === range;
  const known = list.filter(([, v]) => v !== undefined).map(([, v]) => v);
  const most = Math.max(...known, 0), height = (isRange ? most + 1 : most) || 1;
  const x = (at) => ((at - from) / (to - from) * 100).toFixed(2), gap = SPANS[span].gap;
  let drawn = "", before = null;
  for (const [at, v] of list) {
    // Nothing is drawn over a time of which nothing is known.
    if (v !== undefined) drawn += `${before === null || at - before > gap ? "M" : "L"}${x(at)} ${(97 - 94 * (isRange ? v + 1 : v) / height).toFixed(1)}`;
    before = v === undefined ? null : at;
  }
  path.setAttribute("d", drawn);
  setText(top, known.length ? tile.format(most) : "");
  const pointed = node.at === null || !list.length ? null : list[nearest(list, node.at)];
  const shown = pointed ? pointed[1] : tile.read(samples.length - 1);
  line.setAttribute("visibility", pointed ? "visible" : "hidden");
  if (pointed) for (const end of ["x1", "x2"]) line.setAttribute(end, x(pointed[0]));
  setText(value, shownValue(tile, shown));
  setText(axis.firstChild, pointed ? `at ${clock(pointed[0])}` : `${span} ago`);
  setClass(node, `tile${tile.alarms && shown > 0 ? " alarm" : ""}${pointed ? " pointed" : ""}`);
  chart.setAttribute("aria-valuenow", pointed ? nearest(list, node.at) : Math.max(0, list.length - 1));
  chart.setAttribute("aria-valuemax", Math.max(0, list.length - 1));
  chart.setAttribute("aria-valuetext", `${shownValue(tile, shown)} ${pointed ? `at ${clock(pointed[0])}` : "now"}`);
}
function showTiles(now) {
  const shown = TILES.filter(({ role }) => !role || now.server.roles.includes(role));
  sync($("spans"), Object.keys(SPANS), (name) => name, (name) => button(name, () => {
    span = name;
    show();
    loadHistory();
  }), (node, name) => node.setAttribute("aria-pressed", String(span === name)));
  sync($("tiles"), shown, (tile) => tile.name, makeTile, (node, tile) => {
    [node.list, node.from, node.to] = [points(tile, now), now.at - SPANS[span].seconds, now.at];
    drawTile(node, tile);
  });
}
// What the server has kept; the page itself only knows what it has seen.
async function loadHistory() {
  const { kept } = SPANS[span], known = past[kept], now = Date.now();
  if (known.loading || now - known.asked < known.every_s * 1000) return;
  known.loading = true;
  try {
    const since = known.points.length ? known.points[known.points.length - 1][0] : 0;
    const more = await get(`history.json?span=${kept}&since=${since}`);
    [known.names, known.every_s, known.asked] = [more.names, more.every_s, now];
    known.points.push(...more.points);
    known.points.splice(0, known.points.length - known.max);
    if (samples.length) show();
  } catch { /* the next poll says that the server does not answer */ } finally { known.loading = false; }
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
  setText($("history-note"), now.history_note ? `History: ${now.history_note}` : "");
  showProblems([...now.live.reasons, ...now.ready.reasons], live && now.ready.state !== "running" ? "warn" : "bad");
  $("phased-restart").disabled = now.ready.state !== "running";
}

// Why a worker does not do its work, or what it runs is not known.
function troubles(w, unasked) {
  if (w.state !== "ready") return [];
  const found = w.reasons.map((reason) => ({ id: reason.replace(/[\d.]+/g, ""), text: reason, red: true }));
  if (w.running) return found;
  const silent = w.silent_s === undefined ? "" : ` It has not answered for ${time(w.silent_s)}.`;
  if (w.stopped) found.push({ id: "mute", red: true, text: `A signal or a debugger has stopped this process; kill -CONT ${w.pid} lets it go on.${silent}` });
  else if (!silent) found.push({ id: "mute", red: false, text: `What it runs is unknown${unasked ? `: ${unasked}` : ""}` });
  else if (w.silent_s >= FROZEN_S) found.push({ id: "mute", red: true, text: `${w.hogged ? "One unit of work keeps Ruby's lock." : "It may be busy in code that keeps Ruby's lock, or hang."}${silent} Backtraces may say more.` });
  else found.push({ id: "mute", red: false, text: `It has not answered in time${w.hogged ? ": one unit of work keeps Ruby's lock" : ""}.` });
  return found;
}

function showWorkers(now) {
  const ends = Object.entries(now.server.exits).filter(([, n]) => n);
  setText($("exits"), ends.length ? `Ended since the start: ${ends.map(([why, n]) => `${count(n)} ${ENDS[why] || why}`).join(", ")}.` : "");
  setClass($("exits"), FAILURES.some((why) => now.server.exits[why]) ? "warn" : "soft");
  sync($("deaths"), [...now.server.deaths].reverse(), (d) => `${d.worker} ${d.pid} ${d.at}`, () => element("li"), (node, d) => {
    setText(node, `Worker ${d.worker}${d.pid ? ` (pid ${d.pid})` : ""} ${ENDS[d.end] || d.end} ${when(d.at)}, at ${clock(d.at)}: ${[d.how, d.reason].filter(Boolean).join("; ")}`);
    setClass(node, now.at - d.at < RECENT_S ? "bad" : "soft");
  });
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
    const trouble = troubles(w, now.server.running_error), red = trouble.some((one) => one.red);
    const word = !red ? w.state : w.stopped ? "stopped" : w.silent_s >= FROZEN_S ? "frozen" : "not ready";
    setText(name.children[1], word);
    setClass(name.children[1], `pill ${red ? "bad" : trouble.length ? "warn" : STATE[w.state] || ""}`);
    setText(name.children[2], `${w.roles.join(", ")} · pid ${w.pid ?? "–"} · ${time(w.age_s)}`);
    const facts = [["memory", bytes(w.resident)], ["threads", `${w.busy ?? "–"}/${w.threads ?? "–"}`]];
    if (w.roles.includes("web")) facts.push(["queued", count(w.queued)], ["open connections", count(w.connections)], ["served", count(w.requests_total)]);
    if (w.event_streams) facts.push(["event streams", count(w.event_streams)]);
    if (w.roles.includes("streams")) facts.push(["groups", `${w.groups_joined}/${w.groups}`]);
    sync(figures, facts, ([label]) => label, ([label]) => {
      const made = element("span");
      made.append(element("b"), ` ${label}`);
      return made;
    }, (one, [, value]) => setText(one.firstChild, value));
    const units = w.running ? [...w.running].sort((a, b) => b.age_ms - a.age_ms) : [];
    const shown = units.slice(0, 8).map((u) => ({ id: `${u.role} ${u.id}`, what: u.what, age: time(u.age_ms / 1000), late: u.age_ms > LATE_MS }));
    if (units.length > 8) shown.push({ id: "more", what: `and ${units.length - 8} more`, age: "" });
    for (const one of trouble) shown.unshift({ id: one.id, what: one.text, age: "", red: one.red, late: !one.red, wrap: true });
    if (w.running && !units.length) shown.push({ id: "idle", what: "idle", age: "", idle: true });
    sync(list, shown, (u) => u.id, () => {
      const made = element("li");
      made.append(element("span", "what"), element("span", "n"));
      return made;
    }, (one, u) => {
      setText(one.children[0], u.what);
      if (one.children[0].title !== u.what) one.children[0].title = u.what;
      setText(one.children[1], u.age);
      setClass(one, `${u.idle ? "soft" : u.red ? "bad" : u.late ? "warn" : ""}${u.wrap ? " wrap" : ""}`);
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
    const at = (q) => range(windowed((s) => s.web[field].buckets, q, last, MINUTE_SAMPLES));
    fillCells(node, name, at(0.5), at(0.9), at(0.99));
  });
  const e = now.event_streams;
  setText($("event-streams"), e.open || e.delivered ? `Event streams: ${count(e.open)} open, ${short(rate((s) => s.event_streams.delivered))} events / s, ${count(e.delivered)} in all, ${count(e.gaps)} gaps, the slowest ${count(e.lag)} messages behind; history of ${count(e.history_messages)} messages, ${bytes(e.history_bytes)}` : "");
}

const PLACES = [["retry", "Retries", "retries"], ["dead", "Dead", "dead"], ["scheduled", "Scheduled", "scheduled"]];

function showJobs(now) {
  $("jobs").hidden = !now.server.roles.includes("jobs") && !now.server.facts.store;
  if ($("jobs").hidden) return;
  const store = now.jobs.store;
  if (store) lastQueues = store.queues;
  setText($("store"), store ? `${count(store.sets.in_flight)} in flight · ${now.server.facts.store || ""}`
    : `Sizes are unknown: ${now.jobs.store_error || "this server reads no store of jobs"}`);
  setClass($("store"), store ? "soft" : "bad");
  const queues = store ? store.queues : lastQueues.map((q) => ({ ...q, size: undefined, latency_s: undefined, served: null }));
  setText($("no-queues"), store ? "There are no queues yet." : "The queues are unknown.");
  sync($("queues"), queues, (q) => q.name, (q) => {
    const made = row("", "n", "n", "act")();
    made.children[0].append(button(q.name, () => open(`queue:${q.name}`)), " ", element("span", "pill warn", "paused"), " ", element("span", "pill"));
    made.children[3].append(button("", () => post(made.paused ? "resume" : "pause", { queue: q.name }, `Queue ${q.name} is ${made.paused ? "resumed" : "paused"}.`)));
    return made;
  }, (node, q) => {
    node.paused = q.paused;
    const [, paused, unserved] = node.children[0].children;
    paused.hidden = !q.paused;
    unserved.hidden = q.served !== false;
    setText(unserved, "no process works on it");
    setClass(unserved, `pill ${q.size ? "bad" : "warn"}`);
    fillCells(node, null, q.size === undefined ? "unknown" : count(q.size), time(q.latency_s), null);
    setText(node.children[3].firstChild, q.paused ? "Resume" : "Pause");
  });
  sync($("places"), PLACES, ([name]) => name, ([name]) => button("", () => open(place === name ? null : name)), (node, [name, label, set]) => {
    setText(node, `${label} ${store ? count(store.sets[set]) : "unknown"}`);
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
      const p = (field, q) => range(quantile(c[field].buckets, q));
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
  sync($("topics"), now.streams, (t) => `${t.topic} ${t.group}`, row("", "soft", "n", "n", "n", "n", "n", "n", "n", "n"), (node, t) => {
    const partitions = [count(t.partitions), ...(t.stopped ? [`${count(t.stopped)} stopped`] : []), ...(t.paused ? [`${count(t.paused)} paused`] : [])];
    const old = before10.get(`${t.topic} ${t.group}`) || { records: 0 };
    fillCells(node, t.topic, t.group, count(t.lag), t.lag ? time(t.lag_age_s) : "–", partitions.join(", "),
      short(seconds > 0 ? Math.max(0, t.records - old.records) / seconds : 0), count(t.records), count(t.retries), count(t.dead_letters), count(t.rebalances));
    setClass(node.children[4], t.stopped ? "n bad" : "n");
    setClass(node.children[8], t.dead_letters ? "n bad" : "n");
  });
  showPartitions(readers);
}
function showPartitions(readers) {
  const troubles = readers.flatMap((w) => (w.troubles || []).map((one) => ({ ...one, worker: w.worker })));
  sync($("troubles"), troubles, (t) => `${t.worker} ${t.group}`, () => element("li", "bad"), (node, t) =>
    setText(node, plain(`Worker ${t.worker}, group ${t.group}: ${t.text}`)));
  const known = readers.flatMap((w) => (w.partitions || []).map((one) => ({ ...one, worker: w.worker, pid: w.pid })));
  known.sort((a, b) => b.lag - a.lag || a.topic.localeCompare(b.topic) || a.partition - b.partition);
  const all = sum(readers.map((w) => w.partitions_total || 0));
  setText($("partitions-total"), known.length < all ? `(${count(known.length)} of ${count(all)}, those furthest behind)` : "");
  const offset = (n) => n < 0 ? "–" : count(n);
  sync($("partitions"), allPartitions ? known : known.slice(0, PARTITIONS_SHOWN), (p) => `${p.pid} ${p.group} ${p.topic} ${p.partition}`,
    row("", "n", "n", "", "soft", "n", "n", "n", "n"), (node, p) => {
      const state = p.missing ? `stopped: records ${count(p.missing[0])} to ${count(p.missing[1] - 1)} are gone`
        : p.retry_in_ms ? `${p.state}, attempt ${p.attempt}, again in ${time(p.retry_in_ms / 1000)}` : p.state;
      const lag = p.lag >= 0 ? count(p.lag) : p.end === 0 ? "0" : "unknown";
      fillCells(node, p.topic, p.partition, lag, state, p.group, offset(p.committed), offset(p.position), offset(p.end), p.worker);
      setClass(node.children[3], p.missing || p.state === "stopped" ? "bad" : p.retry_in_ms ? "warn" : "");
    });
  $("more-partitions").hidden = known.length <= PARTITIONS_SHOWN;
  setText($("more-partitions"), allPartitions ? "Fewer" : `All ${known.length}`);
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
  if (!store) return undefined;
  if (!place) return 0;
  const found = PLACES.find(([name]) => name === place);
  if (found) return store.sets[found[2]];
  return (store.queues.find((q) => `queue:${q.name}` === place) || { size: 0 }).size;
}
function open(name) {
  place = name;
  find = { filter: "", group: null, grouped: false };
  $("filter").value = "";
  from(0);
  $("list").hidden = !name;
  if (samples.length) show();
}
// Goes to a part of the list; `parts` has where those before it begin.
function from(start, parts = []) {
  [offset, earlier] = [start, parts];
  $("entries").replaceChildren();
  $("entries").known = undefined;
  $("searched").textContent = "";
  list();
}
const filters = () => ({ ...(find.filter && { filter: find.filter }), ...(find.group && { group: find.group.group }) });
async function list() {
  if (!place) return;
  listedAt = Date.now();
  const asked = [place, offset, find];
  const same = () => asked[0] === place && asked[1] === offset && asked[2] === find;
  try {
    const what = new URLSearchParams({ place, offset, ...filters() });
    const page = await get(`${find.grouped ? "groups" : "jobs"}.json?${what}`);
    if (!same()) return;
    if (!find.grouped && !page.jobs.length && offset && !page.stopped) return from(earlier.pop() || 0, earlier);
    (find.grouped ? showGroups : showList)(page);
  } catch (error) { if (same()) { next = null; setText($("searched"), error.message); showListHead(); } }
}
function showListHead() {
  if (!place) return;
  const title = (PLACES.find(([name]) => name === place) || [0, place.replace("queue:", "Queue ")])[1];
  const shown = $("entries").children.length, filtered = find.filter || find.group;
  const part = find.grouped ? `${count(shown)} groups` : filtered ? `${count(shown)}${next === null && !offset ? "" : " here"} of` :
    total === 0 ? "none" : total === undefined ? "unknown" : `${count(offset + 1)}–${count(Math.min(offset + shown, total))} of ${count(total)}`;
  setText($("list-title"), `${title}: ${part}${filtered && !find.grouped ? ` ${total === undefined ? "an unknown number" : count(total)}` : ""}`);
  $("newer").disabled = offset === 0;
  $("newer").hidden = $("older").hidden = find.grouped || (offset === 0 && next === null);
  $("older").disabled = next === null;
  $("grouped").hidden = place.startsWith("queue:") || place === "scheduled";
  $("grouped").setAttribute("aria-pressed", String(find.grouped));
  $("ungroup").hidden = !find.group;
  setText($("ungroup"), find.group ? `Like “${find.group.group}” ×` : "");
  const some = filtered ? "these" : "all";
  $("retry-all").hidden = place.startsWith("queue:");
  $("kill-all").hidden = place !== "retry";
  for (const [name, verb] of [["retry", "Retry"], ["kill", "Kill"], ["delete", "Delete"]]) {
    setText($(`${name}-all`), `${verb} ${some}`);
    $(`${name}-all`).disabled = !total || !shown || find.grouped;
  }
}
function searchedText(page) {
  if (!find.filter && !find.group && !find.grouped) return "";
  return page.stopped ? `The search stopped after ${count(page.searched)} entries${find.grouped ? "" : "; Next goes on"}.` : `${count(page.searched)} entries were searched.`;
}
function showGroups(page) {
  next = null;
  sync($("entries"), page.groups, (group) => `group ${group.group}`, (group) => {
    const made = element("div", "entry"), text = element("div"), act = element("div", "bar");
    text.append(element("div", "class"), element("div", "facts"));
    act.append(button("Show", () => { find = { ...find, group, grouped: false }; from(0); }));
    made.append(text, act, element("div", "error"));
    return made;
  }, (node, group) => {
    setText(node.firstChild.children[0], `${count(group.count)} × ${group.class || "no job document"}`);
    setText(node.firstChild.children[1], `${place === "dead" ? "died" : "due"} ${when(group.from)}${group.count > 1 ? ` to ${when(group.to)}` : ""}`);
    setText(node.children[2], plain(group.error || "no error"));
  });
  setText($("searched"), searchedText(page));
  showListHead();
}
// What a person does with a job of a list.
function jobActions(where, job) {
  const act = [];
  if (!where.startsWith("queue:")) act.push(button("Retry", () => postJob("retry", where, job, "goes back to its queue")));
  if (where !== "dead") act.push(button("Kill", () => ask(`Move ${job.class} ${job.jid} to the dead jobs?`, () => postJob("kill", where, job, "is dead"), "Kill")));
  act.push(button("Delete", () => ask(`Delete ${job.class || "this entry"} ${job.jid} for good?`, () => postJob("delete", where, job, "is deleted"), "Delete"), "danger"));
  return act;
}
function showList(page) {
  next = page.next;
  sync($("entries"), page.jobs, (job) => `${place} ${job.jid} ${job.at}`, (job) => {
    const made = element("div", "entry"), text = element("div"), act = element("div", "bar");
    text.append(element("div", "class"), element("div", "facts"));
    const where = place;
    act.append(button("Details", () => showJob(where, made.job)), ...jobActions(where, job));
    made.append(text, act, element("div", "error"));
    return made;
  }, (node, job) => {
    node.job = job;
    setText(node.firstChild.children[0], plain(job.class || "no job document"));
    const facts = [job.queue, job.jid];
    if (job.at) facts.push(`${place === "dead" ? "died" : "due"} ${when(job.at)}`);
    if (!job.at && job.enqueued_at) facts.push(`enqueued ${when(job.enqueued_at)}`);
    if (job.failures) facts.push(`failed ${job.failures} ×`);
    setText(node.firstChild.children[1], plain(facts.filter(Boolean).join(" · ")));
    setText(node.children[2], plain(job.error || ""));
  });
  setText($("searched"), searchedText(page));
  showListHead();
}
async function showJob(where, job) {
  const body = $("job-body");
  setText($("job-title"), plain(job.class || "no job document"));
  body.replaceChildren(element("p", "soft", "asking…"));
  $("job").showModal();
  try {
    const more = await get(`job.json?${new URLSearchParams({ place: where, jid: job.jid, offset: job.offset })}`);
    const table = element("table"), rows = element("tbody");
    const moment = (at) => at && `${new Date(at * 1000).toLocaleString()} (${when(at)})`;
    for (const [name, value] of [["id", more.jid], ["queue", more.queue], ["batch", more.bid], ["arguments", more.values === null ? more.arguments : ""],
      ["made", moment(more.created_at)], ["enqueued", moment(more.enqueued_at)], [where === "dead" ? "died" : "due", moment(more.at)],
      ["first failure", moment(more.failed_at)], ["last failure", moment(more.retried_at)], ["failures", more.failures]]) {
      if (value === null || value === undefined || value === 0 || value === "") continue;
      const line = element("tr");
      line.append(element("th", "", name), element("td", "", plain(String(value))));
      rows.append(line);
    }
    table.append(rows);
    const shown = [table];
    if (more.values === null) shown.push(element("p", "soft", `Of the arguments only the kinds are shown: ${more.values_error}. chaton jobs show ${more.jid} prints them.`));
    else if (typeof more.values === "string") shown.push(element("p", "soft", `Arguments: ${plain(more.values)}.`));
    else shown.push(element("h3", "", more.values.length ? "Arguments" : "No arguments"), ...more.values.map((one) => element("pre", "values", plain(JSON.stringify(one, null, 2), true))));
    if (more.error) shown.push(element("p", "bad wraps", plain(more.error)));
    if (more.backtrace.length) shown.push(element("pre", "trace", plain(more.backtrace.join("\n"), true)));
    else if (more.error) shown.push(element("p", "soft", "The job keeps no backtrace; its class may ask for one with options backtrace: 20."));
    const act = element("div", "bar");
    act.append(...jobActions(where, job));
    act.addEventListener("click", () => $("job").close());
    body.replaceChildren(...shown, act);
  } catch (error) { body.replaceChildren(element("p", "bad", error.message)); }
}

// Batches are looked for while they are shown, and not with each poll: a store may have no list of them.
async function loadBatches() {
  if (!batchesShown || Date.now() - batchesAt < SEARCH_EVERY_MS) return;
  batchesAt = Date.now();
  try {
    const { batches } = await get("batches.json");
    setText($("batches-note"), batches.length ? "" : "All batches have succeeded.");
    sync($("batches"), batches, (b) => b.bid, row("", "n", "share", "", "n", "n", "soft"), (node, b) => {
      const done = b.total - b.pending, nested = b.children_pending ? `, ${count(b.children_pending)} nested batches have not` : "";
      const state = b.dead ? "a job is dead" : b.complete ? "all ran, not all succeeded" : "runs";
      fillCells(node, plain(b.description || "–"), `${count(done)} of ${count(b.total)}`, null, state + nested,
        count(b.failures), when(b.created_at), b.parent ? `${b.bid}, in ${b.parent}` : b.bid);
      share(node.children[2], b.total ? done / b.total : 0);
      setClass(node.children[3], b.dead ? "bad" : b.complete ? "warn" : "");
      setClass(node.children[4], b.failures ? "n bad" : "n");
    });
  } catch (error) { setText($("batches-note"), `Batches are unknown: ${error.message}`); }
}

// Entries of `cron`, whose ticks only the store knows.
async function loadCrons() {
  const now = samples[samples.length - 1];
  $("crons-part").hidden = !now.jobs.crons;
  if (!now.jobs.crons || Date.now() - cronsAt < SEARCH_EVERY_MS) return;
  cronsAt = Date.now();
  let why = "";
  try { crons = (await get("crons.json")).crons; } catch (error) { why = `Ticks are unknown: ${error.message}`; }
  setText($("crons-note"), why);
  sync($("crons"), crons, (c) => c.name, (c) => {
    const made = row("", "n", "n", "act", "", "soft")();
    made.children[3].append(button("Run now", () => ask(`Enqueue a job of ${c.name} (${c.class}) now?`, () => runCron(c.name), "Run")));
    return made;
  }, (node, c) => {
    const tick = (at, none) => why ? "unknown" : at ? when(at) : none;
    fillCells(node, c.name, tick(c.last_at, "none yet"), tick(c.next_at, "none"), null, c.queue ? `${c.class}, ${c.queue}` : c.class, `${c.schedule} ${c.zone}`);
    for (const [index, at] of [[1, c.last_at], [2, c.next_at]]) node.children[index].title = at && !why ? new Date(at * 1000).toLocaleString() : "";
  });
}
async function runCron(name) {
  const done = await post("run-cron", { name });
  if (done) notice(`A job of ${name} is enqueued: ${done.jid}.`);
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
  post(name, { place: from, jid: job.jid, offset: job.offset }, `${job.class || "The entry"} ${job.jid} ${done}.`);

// As many as there are now, so that jobs that fail again in the meantime are not sent back twice.
async function all(name, verb) {
  const where = place, wanted = filters(), some = Object.keys(wanted).length > 0;
  let left = total, start = 0, done = 0;
  try {
    while (left > 0 && start !== null) {
      const answer = await action(`${name}-all`, { place: where, count: left, offset: start, ...wanted });
      if (!answer.count && !some) break;
      left -= answer.count + (answer.next ?? start) - start;
      [start, done] = [answer.next, done + answer.count];
      notice(`${count(done)} jobs ${verb}.`);
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
    const { threads, running } = await action("backtraces", { worker });
    const work = new Map((running || []).map((unit) => [unit.tid, unit]));
    // What runs longest comes first, then other threads of the application; idle ones of the pool and Chaton's own
    // are nearly always the same.
    const idle = (t) => !work.has(t.tid) && /^(chaton |main$)/.test(t.thread);
    const age = (t) => work.get(t.tid)?.age_ms ?? -1;
    threads.sort((a, b) => idle(a) - idle(b) || age(b) - age(a));
    const shown = (t) => {
      const head = element("div"), unit = work.get(t.tid);
      head.append(element("strong", "", unit ? unit.what : t.thread));
      head.append(element("span", unit && unit.age_ms > LATE_MS ? "warn" : "soft", unit ? ` ${time(unit.age_ms / 1000)} · ${t.thread} · ${t.status}` : ` ${t.status}`));
      return [head, element("pre", "", t.backtrace.join("\n"))];
    };
    const rest = threads.filter(idle), fold = element("details");
    fold.append(element("summary", "soft", `${rest.length} threads that wait for work, and Chaton's own`), ...rest.flatMap(shown));
    $("threads-list").replaceChildren(...threads.filter((t) => !idle(t)).flatMap(shown), fold);
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
    loadHistory();
    loadBatches();
    loadCrons();
    if (!find.filter && !find.group && !find.grouped || Date.now() - listedAt > SEARCH_EVERY_MS) list();
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
const which = () => find.filter || find.group ? "all jobs of this list that match" : `all ${count(total)} jobs of this list`;
$("retry-all").addEventListener("click", () => ask(`Send ${which()} back to their queues?`, () => all("retry", "went back to their queues"), "Retry"));
$("kill-all").addEventListener("click", () => ask(`Move ${which()} to the dead jobs?`, () => all("kill", "are dead"), "Kill"));
$("delete-all").addEventListener("click", () => ask(`Delete ${which()} for good?`, () => all("delete", "are deleted"), "Delete"));
$("newer").addEventListener("click", () => from(earlier[earlier.length - 1] ?? 0, earlier.slice(0, -1)));
$("older").addEventListener("click", () => { if (next !== null) from(next, [...earlier, offset]); });
$("filter").addEventListener("input", () => {
  clearTimeout(find.timer);
  find.timer = setTimeout(() => { find = { ...find, filter: $("filter").value.trim() }; from(0); }, 300);
});
$("grouped").addEventListener("click", () => { find = { ...find, group: null, grouped: !find.grouped }; from(0); });
$("ungroup").addEventListener("click", () => { find = { ...find, group: null }; from(0); });
$("job-close").addEventListener("click", () => $("job").close());
$("more-classes").addEventListener("click", () => { allClasses = !allClasses; show(); });
$("show-batches").addEventListener("click", () => {
  [batchesShown, batchesAt] = [!batchesShown, 0];
  $("show-batches").setAttribute("aria-pressed", String(batchesShown));
  $("batches-part").hidden = !batchesShown;
  loadBatches();
});
$("more-partitions").addEventListener("click", () => { allPartitions = !allPartitions; show(); });
$("question-no").addEventListener("click", () => $("question").close());
$("question-yes").addEventListener("click", () => { $("question").close(); answered(); });
$("threads-close").addEventListener("click", () => $("threads").close());
poll();
