//! The page for people: its files, its data and its actions. The admin endpoint serves it to those who have
//! opened a one-time link or have the token; an application that mounts it decides itself who may see it.

pub(crate) mod control;
mod document;
pub(crate) mod history;
pub(crate) mod sampler;
pub(crate) mod sessions;
pub mod stored_jobs;

use std::io;

use chaton_core::clock::now_ns;
use serde_json::{json, Value};

use crate::access::{cookie_name, WRONG_TOKEN};
use crate::answer::Answer;
pub use crate::config::{CronEntry, DashboardConfig};
use crate::request_head::AdminRequest;
use crate::state::{runtime, State};
use stored_jobs::{JobAction, JobDetails, JobFilter, JobSource, StoredJobs};

const PAGE: &str = include_str!("dashboard/page.html");
const SIGN_IN: &str = include_str!("dashboard/sign_in.html");
const OPENED: &str = include_str!("dashboard/opened.html");
const STYLE: &str = include_str!("dashboard/dashboard.css");
const SCRIPT: &str = include_str!("dashboard/dashboard.js");
const HTML: &str = "text/html; charset=utf-8";

/// Jobs in one page of a list.
const JOBS_MAX: usize = 50;
/// Jobs of one action on all; the page repeats it until it has been through.
const ACTION_JOBS_MAX: usize = 200;

/// Batches that are shown.
const BATCHES_MAX: usize = 100;

/// Whether the path is one of the page's.
pub(crate) fn has(path: &str) -> bool {
    matches!(
        path,
        "/" | "/open"
            | "/dashboard.css"
            | "/dashboard.js"
            | "/dashboard.json"
            | "/history.json"
            | "/jobs.json"
            | "/job.json"
            | "/groups.json"
            | "/batches.json"
            | "/crons.json"
    ) || path.starts_with("/actions/")
}

/// Answers a request that came to the admin endpoint.
pub(crate) async fn answer(request: &AdminRequest, state: &State) -> Answer {
    match request.path.as_str() {
        "/dashboard.css" | "/dashboard.js" => return serve(request, state).await,
        "/open" if request.method == "GET" => return open(request, state).await,
        _ => {}
    }
    let session = request.session.as_deref();
    let in_session =
        session.is_some_and(|key| state.dashboard.sessions.lock().is_valid(key, now_ns()));
    let has_token = match &request.token {
        Some(given) if !in_session => match state.token_is_right(given).await {
            Ok(right) => right,
            Err(refusal) => return refusal,
        },
        _ => false,
    };
    // Programs send neither header, and no page knows the token.
    let from_browser = in_session || request.origin.is_some() || request.fetch_site.is_some();
    match (in_session || has_token, from_browser) {
        (true, true) => return Answer { to_known_client: true, ..serve(request, state).await },
        (true, false) => {
            return Answer { to_known_client: true, ..serve_to_program(request, state).await }
        }
        (false, _) => {}
    }
    if request.path == "/" {
        return Answer { status: 401, ..Answer::text(HTML, SIGN_IN) };
    }
    Answer::error(401, "open the page with the link of `chaton dashboard`, or send the token (Authorization: Bearer …)")
}

/// Begins a session for the key of a one-time link. The answer is a page that goes on to the dashboard: after
/// a redirect, a browser that came from another site would not send the cookie.
async fn open(request: &AdminRequest, state: &State) -> Answer {
    let key = query_value(&request.query, "key").unwrap_or_default();
    let valid = || state.dashboard.sessions.lock().use_link(&key, now_ns());
    if !valid() {
        let Some(one_at_a_time) = state.guess_gate.enter().await else {
            return Answer::too_many_guesses();
        };
        tokio::time::sleep(WRONG_TOKEN).await;
        drop(one_at_a_time);
        // The main process may have announced it in the meantime.
        if !valid() {
            return Answer { status: 403, ..Answer::text(HTML, SIGN_IN) };
        }
    }
    let length = state.config.dashboard.session;
    match state.dashboard.sessions.lock().begin(length, now_ns()) {
        Ok(key) => {
            let name = cookie_name(request.host.as_deref());
            let age = length.as_secs();
            let cookie = format!("{name}={key}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict");
            Answer { cookie: Some(cookie), ..Answer::text(HTML, OPENED) }
        }
        Err(error) => Answer::error(503, &format!("no session can be begun: {error}")),
    }
}

/// Answers a request of a browser whose user may see the page.
pub(crate) async fn serve(request: &AdminRequest, state: &State) -> Answer {
    if request.method == "POST" && !is_same_origin(request) {
        return Answer::error(
            403,
            "actions are only taken from the page itself (Origin, Sec-Fetch-Site)",
        );
    }
    serve_to_program(request, state).await
}

async fn serve_to_program(request: &AdminRequest, state: &State) -> Answer {
    if let Some(action) = request.path.strip_prefix("/actions/") {
        if request.method != "POST" {
            return Answer::error(405, "actions are taken by POST");
        }
        return match act(action, request, state).await {
            Ok(done) => Answer::of(200, &done),
            Err((status, why)) => Answer::error(status, &why),
        };
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::error(405, "only GET and HEAD are answered");
    }
    match request.path.as_str() {
        "/" => Answer::text(HTML, PAGE),
        "/dashboard.css" => Answer::text("text/css; charset=utf-8", STYLE),
        "/dashboard.js" => Answer::text("text/javascript; charset=utf-8", SCRIPT),
        "/dashboard.json" => Answer::of(200, &document::document(state).await),
        "/history.json" => match history_since(request) {
            Ok((day, since)) => Answer::of(200, &state.dashboard.history.lock().shown(day, since)),
            Err((status, why)) => Answer::error(status, &why),
        },
        "/batches.json" => match batches(state).await {
            Ok(batches) => Answer::of(200, &batches),
            Err((status, why)) => Answer::error(status, &why),
        },
        "/crons.json" => match crons(state).await {
            Ok(crons) => Answer::of(200, &crons),
            Err((status, why)) => Answer::error(status, &why),
        },
        "/jobs.json" | "/job.json" | "/groups.json" => match jobs(request, state).await {
            Ok(page) => Answer::of(200, &page),
            Err((status, why)) => Answer::error(status, &why),
        },
        _ => Answer::error(404, "there is no such page"),
    }
}

/// Whether a page of this server has sent the request. Browsers say so in `Sec-Fetch-Site`, and where they do
/// not (without TLS, from other hosts) in `Origin`; no page can set either.
fn is_same_origin(request: &AdminRequest) -> bool {
    match (&request.fetch_site, &request.origin) {
        (Some(site), _) if site != "same-origin" => false,
        (_, Some(origin)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let same = authority
                .zip(request.host.as_deref())
                .is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
            // A proxy that changes Host leaves Sec-Fetch-Site.
            same || request.fetch_site.is_some()
        }
        (site, None) => site.is_some(),
    }
}

type Outcome = Result<Value, (u16, String)>;

fn wrong(why: impl Into<String>) -> (u16, String) {
    (400, why.into())
}

/// The server understood the request and cannot carry it out.
fn refused(why: String) -> (u16, String) {
    (409, why)
}

fn wanted(request: &AdminRequest, name: &str) -> Result<String, (u16, String)> {
    query_value(&request.query, name).ok_or_else(|| wrong(format!("{name} is missing")))
}

fn wanted_number(request: &AdminRequest, name: &str) -> Result<u64, (u16, String)> {
    let text = wanted(request, name)?;
    text.parse().map_err(|_| wrong(format!("{name} must be a number")))
}

async fn act(action: &str, request: &AdminRequest, state: &State) -> Outcome {
    let control = &state.dashboard.control;
    match action {
        "phased-restart" => {
            control.call(&json!({ "command": "phased-restart" })).await.map_err(refused)?;
            Ok(json!({ "ok": true }))
        }
        "restart-worker" => {
            let worker = wanted_number(request, "worker")?;
            let command = json!({ "command": "restart-worker", "worker": worker });
            control.call(&command).await.map_err(refused)?;
            Ok(json!({ "ok": true }))
        }
        "backtraces" => {
            let worker = wanted_number(request, "worker")?;
            control.backtraces(worker).await.map_err(refused)
        }
        "run-cron" => run_cron(&wanted(request, "name")?, state).await,
        "pause" | "resume" => {
            let (queue, paused) = (wanted(request, "queue")?, action == "pause");
            let done = store(state)?.call(move |jobs| jobs.pause(&queue, paused)).await;
            done.map(|()| json!({ "ok": true })).map_err(refused)
        }
        "retry" | "retry-all" => act_on_jobs(JobAction::Retry, action, request, state).await,
        "delete" | "delete-all" => act_on_jobs(JobAction::Delete, action, request, state).await,
        "kill" | "kill-all" => act_on_jobs(JobAction::Kill, action, request, state).await,
        _ => Err((404, "there is no such action".to_owned())),
    }
}

async fn act_on_jobs(
    what: JobAction,
    action: &str,
    request: &AdminRequest,
    state: &State,
) -> Outcome {
    let (place, store) = (wanted(request, "place")?, store(state)?);
    if action.ends_with("-all") {
        let count = usize::try_from(wanted_number(request, "count")?).unwrap_or(usize::MAX);
        let count = count.clamp(1, ACTION_JOBS_MAX);
        let (from, filter) = (offset(request)?, filter(request));
        let done =
            store.call(move |jobs| jobs.act_on_all(what, &place, from, count, &filter)).await;
        return done.map(|(done, next)| json!({ "count": done, "next": next })).map_err(refused);
    }
    let (jid, offset) = (wanted(request, "jid")?, offset(request)?);
    let found = store.call(move |jobs| jobs.act(what, &place, &jid, offset)).await;
    match found.map_err(refused)? {
        true => Ok(json!({ "ok": true })),
        false => Err(gone()),
    }
}

/// Whether the whole day is asked for, and after which time.
fn history_since(request: &AdminRequest) -> Result<(bool, u32), (u16, String)> {
    let day = match query_value(&request.query, "span").as_deref() {
        Some("day") => true,
        Some("hour") | None => false,
        Some(_) => return Err(wrong("span must be hour or day")),
    };
    let since = query_value(&request.query, "since");
    let since = since.map_or(Ok(0), |text| text.parse());
    Ok((day, since.map_err(|_| wrong("since must be a number"))?))
}

/// A part of a list, its groups, or one of its jobs.
async fn jobs(request: &AdminRequest, state: &State) -> Outcome {
    let (place, offset, filter) = (wanted(request, "place")?, offset(request)?, filter(request));
    let store = store(state)?;
    let found = match request.path.as_str() {
        "/groups.json" => {
            let found = store.call(move |jobs| stored_jobs::groups(jobs, &place, &filter)).await;
            found.map(|(groups, searched, stopped)| {
                json!({ "groups": groups, "searched": searched, "stopped": stopped })
            })
        }
        "/job.json" => {
            let jid = wanted(request, "jid")?;
            let found = store.call(move |jobs| jobs.details(&place, &jid, offset)).await;
            let mut job = found.map_err(refused)?.ok_or_else(gone)?;
            (job.values, job.values_error) = values(&job, state).await;
            return Ok(json!(job));
        }
        _ => {
            let search = move |jobs: &mut dyn JobSource| {
                stored_jobs::search(jobs, &place, offset, JOBS_MAX, &filter)
            };
            store.call(search).await.map(|page| json!(page))
        }
    };
    found.map_err(refused)
}

async fn batches(state: &State) -> Outcome {
    let found = store(state)?.call(move |jobs| jobs.batches(BATCHES_MAX)).await;
    found.map(|batches| json!({ "batches": batches })).map_err(refused)
}

async fn crons(state: &State) -> Outcome {
    let DashboardConfig { application, crons, .. } = state.config.dashboard.clone();
    let entries = crons.clone();
    let ticks = store(state)?.call(move |jobs| jobs.crons(&application, &entries)).await;
    let shown = crons.iter().zip(ticks.map_err(refused)?).map(|(entry, (last_at, next_at))| {
        let mut shown = json!(entry);
        (shown["last_at"], shown["next_at"]) = (json!(last_at), json!(next_at));
        shown
    });
    Ok(json!({ "crons": shown.collect::<Vec<_>>() }))
}

/// Enqueues a job of a cron entry now. A worker does that, which knows the options of the job's class.
async fn run_cron(name: &str, state: &State) -> Outcome {
    if !state.config.dashboard.crons.iter().any(|entry| entry.name == name) {
        return Err((404, "there is no such cron entry".to_owned()));
    }
    let worker = any_worker(state).await.map_err(refused)?;
    let answer = state.dashboard.control.run_cron(worker, name).await.map_err(refused)?;
    Ok(json!({ "ok": true, "jid": answer["jid"] }))
}

/// The values of a job's arguments, as the filters of the application leave them, which a worker knows; or why they
/// are not known.
async fn values(job: &JobDetails, state: &State) -> (Option<Value>, Option<String>) {
    let Some(arguments) = &job.raw_arguments else {
        return (None, Some("the arguments are too long to be shown".to_owned()));
    };
    let filtered = async {
        let worker = any_worker(state).await?;
        state.dashboard.control.filter_arguments(worker, arguments).await
    };
    match filtered.await {
        Ok(values) => (Some(values), None),
        Err(why) => (None, Some(why)),
    }
}

/// A worker that answers; one that runs jobs if there is one.
async fn any_worker(state: &State) -> Result<u64, String> {
    let answers = state.dashboard.control.running().await;
    if let Some(why) = answers.error {
        return Err(why);
    }
    let (report, _) = state.report();
    let runs_jobs = |number: u64| {
        let mut workers = report.workers.iter();
        workers.any(|entry| {
            entry.worker as u64 == number && entry.roles.iter().any(|one| one == "jobs")
        })
    };
    let numbers = answers.answers.iter().filter(|one| one["ok"] == true);
    let numbers = numbers.filter_map(|one| one["worker"].as_u64());
    let best = numbers.max_by_key(|number| runs_jobs(*number));
    best.ok_or_else(|| "no worker answers now; try again".to_owned())
}

fn gone() -> (u16, String) {
    (404, "the job is not there any more".to_owned())
}

fn filter(request: &AdminRequest) -> JobFilter {
    let value = |name| query_value(&request.query, name);
    JobFilter::new(value("filter"), value("group"))
}

fn offset(request: &AdminRequest) -> Result<usize, (u16, String)> {
    let given = query_value(&request.query, "offset");
    given.map_or(Ok(0), |text| text.parse().map_err(|_| wrong("offset must be a number")))
}

fn store(state: &State) -> Result<&StoredJobs, (u16, String)> {
    state.dashboard.jobs.as_ref().ok_or((404, "this server has no jobs".to_owned()))
}

/// The value of a query's member, decoded; the first one counts.
fn query_value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(key, _)| *key == name)?.1;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|value| !value.is_empty())
}

/// The page in an application that mounts it, which has checked who asks.
pub struct MountedDashboard {
    state: std::sync::Arc<State>,
    /// Gone when this is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

/// A request to a [`MountedDashboard`]. The path is below the place where it is mounted.
#[allow(missing_docs)]
pub struct MountedRequest {
    /// The path of that place: Rack's `SCRIPT_NAME`.
    pub mount: String,
    pub method: String,
    pub path: String,
    pub query: String,
    pub host: Option<String>,
    pub origin: Option<String>,
    pub fetch_site: Option<String>,
}

impl MountedDashboard {
    /// # Errors
    /// When the system refuses what the runtime needs.
    pub fn new(state: std::sync::Arc<State>) -> io::Result<Self> {
        Ok(Self { state, runtime: Some(runtime()?) })
    }

    /// Status, media type and body of the answer; it is there within a few seconds.
    pub fn call(&self, request: MountedRequest) -> (u16, &'static str, String) {
        let answer = self.runtime.as_ref().map(|runtime| runtime.block_on(self.answer(request)));
        let answer = answer.unwrap_or_else(|| Answer::error(503, "the process ends"));
        (answer.status, answer.content_type, answer.body)
    }

    async fn answer(&self, request: MountedRequest) -> Answer {
        let MountedRequest { mount, method, mut path, query, host, origin, fetch_site } = request;
        if path.is_empty() {
            path.push('/');
        }
        if !has(&path) || path == "/open" {
            return Answer::error(404, "there is no such page");
        }
        if path == "/dashboard.json" {
            // The supervisor sends its reports to the admin endpoint; here they are asked for.
            let report = self.state.dashboard.control.call(&json!({ "command": "report" })).await;
            let taken = report.and_then(|answer| {
                self.state.take(&answer["report"].to_string()).map_err(|error| error.to_string())
            });
            if let Err(why) = taken {
                return Answer::error(503, &why);
            }
        }
        if path == "/history.json" {
            // The admin endpoint writes it.
            let loaded = self.state.dashboard.history.lock().load();
            loaded.unwrap_or_else(|why| self.state.dashboard.warn(why));
        }
        let request = AdminRequest {
            method,
            path,
            query,
            host,
            origin,
            fetch_site,
            ..AdminRequest::default()
        };
        let mut answer = serve(&request, &self.state).await;
        if request.path == "/" {
            answer.body = mounted(&answer.body, &mount);
        }
        answer
    }
}

impl Drop for MountedDashboard {
    /// A call to a store that does not answer may still run, and does not keep the process from ending.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

/// The page with the files' addresses below `mount`, as its own address may be without a slash at the end.
fn mounted(page: &str, mount: &str) -> String {
    let escaped = mount.chars().fold(String::new(), |mut text, one| {
        match one {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '"' => text.push_str("&quot;"),
            other => text.push(other),
        }
        text
    });
    page.replace("=\"dashboard.", &format!("=\"{escaped}/dashboard."))
}

#[cfg(test)]
mod tests;
