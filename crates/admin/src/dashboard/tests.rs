use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{AdminListener, Config};
use crate::queues::{QueueSize, StoreSizes};
use chaton_core::process::counters::{ClassCounters, TopicCounters};
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard};
use stored_jobs::tests::Listed;

const MINUTE: Duration = Duration::from_secs(60);

fn config(link: Duration) -> Config {
    let dashboard = DashboardConfig { link, session: MINUTE, ..Default::default() };
    Config {
        listeners: vec![],
        token: Some("0123456789abcdef".to_owned()),
        hosts: vec![],
        connections_max: 128,
        timeout: Duration::from_secs(60),
        alive_timeout: None,
        queue_age: Duration::from_secs(1),
        lag_max: None,
        statsd: None,
        roles: vec![],
        dashboard,
        store: Value::Null,
    }
}

fn listener() -> AdminListener {
    AdminListener { fd: 0, unix: false, host: "box".to_owned(), open: false }
}

/// The answer of an endpoint that was told of the link `key`, valid for so long, to each of these requests.
fn answers(link: Duration, requests: &[AdminRequest]) -> Vec<Answer> {
    let state = State::new(config(link), Scoreboard::new(1).unwrap(), |_| None);
    state.take(r#"{"link":"key"}"#).unwrap();
    let runtime = crate::state::runtime().unwrap();
    let answer = |request| runtime.block_on(crate::routes::answer(request, &listener(), &state));
    requests.iter().map(answer).collect()
}

fn get(path: &str, query: &str, host: &str) -> AdminRequest {
    let [method, path, query] = ["GET", path, query].map(str::to_owned);
    AdminRequest { method, path, query, host: Some(host.to_owned()), ..AdminRequest::default() }
}

#[test]
fn a_link_opens_the_page_once_and_in_time_and_not_under_another_host() {
    let open = || get("/open", "key=key", "box:1");
    let wrong = [
        get("/open", "key=kez", "box:1"),
        get("/open", "", "box:1"),
        get("/open", "key=key", "evil.example"),
    ];
    let requests: Vec<_> = wrong.into_iter().chain([open(), open()]).collect();
    let found = answers(MINUTE, &requests);
    assert_eq!(found.iter().map(|one| one.status).collect::<Vec<_>>(), [403, 403, 403, 200, 403]);
    let cookies: Vec<_> = found.iter().map(|one| one.cookie.is_some()).collect();
    assert_eq!(cookies, [false, false, false, true, false]);
    let late = answers(Duration::ZERO, &[open()]);
    assert_eq!((late[0].status, late[0].cookie.is_none()), (403, true));
}

fn request(fetch_site: Option<&str>, origin: Option<&str>) -> AdminRequest {
    AdminRequest {
        host: Some("box:9394".to_owned()),
        fetch_site: fetch_site.map(str::to_owned),
        origin: origin.map(str::to_owned),
        ..AdminRequest::default()
    }
}

#[test]
fn only_a_page_of_the_same_origin_may_act() {
    let own = |site, origin| is_same_origin(&request(site, origin));
    assert!(own(Some("same-origin"), Some("http://box:9394")));
    assert!(own(None, Some("https://BOX:9394")));
    assert!(own(Some("same-origin"), None));
    // Behind a proxy that changes Host.
    assert!(own(Some("same-origin"), Some("https://public.example")));
    for (site, origin) in [
        (None, None),
        (None, Some("null")),
        (None, Some("http://box:9395")),
        (None, Some("http://evil.example")),
        (Some("none"), None),
        (Some("same-site"), Some("http://box:9394")),
        (Some("cross-site"), Some("http://box:9394")),
    ] {
        assert!(!own(site, origin), "{site:?} {origin:?}");
    }
    let hostless = AdminRequest { host: None, ..request(None, Some("http://box:9394")) };
    assert!(!is_same_origin(&hostless));
}

#[test]
fn each_port_has_a_cookie_of_its_own() {
    assert_eq!(cookie_name(Some("box:9394")), "chaton_dashboard_9394");
    assert_eq!(cookie_name(Some("[::1]:9394")), "chaton_dashboard_9394");
    assert_eq!(cookie_name(Some("box")), "chaton_dashboard_80");
    assert_eq!(cookie_name(Some("box:1; a=b")), "chaton_dashboard_1");
    assert_eq!(cookie_name(None), "chaton_dashboard_80");
}

#[test]
fn values_of_a_query_are_decoded() {
    let query = "place=queue%3Aa+b&jid=%zz&empty=&jid2=%C3%A9&cut=%4";
    let value = |name| query_value(query, name);
    assert_eq!(value("place").as_deref(), Some("queue:a b"));
    assert_eq!(value("jid2").as_deref(), Some("é"));
    assert_eq!(
        (value("jid"), value("empty"), value("cut"), value("other")),
        (None, None, None, None)
    );
}

#[test]
fn a_mounted_page_finds_its_files() {
    let page = mounted(PAGE, "/a\"&<b>");
    assert!(page.contains("href=\"/a&quot;&amp;&lt;b>/dashboard.css\""));
    assert!(page.contains("src=\"/a&quot;&amp;&lt;b>/dashboard.js\""));
    assert!(!page.contains("=\"dashboard."));
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_writes_no_html() {
    for text in [PAGE, SIGN_IN, OPENED, STYLE, SCRIPT] {
        let links =
            text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(links, 0);
    }
    for unsafe_call in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!SCRIPT.contains(unsafe_call), "{unsafe_call}");
    }
    let bytes = [PAGE, SIGN_IN, OPENED, STYLE, SCRIPT].map(str::len).iter().sum::<usize>();
    assert!(bytes <= 64 * 1024, "{bytes}");
}

/// Guesses from 50 clients at once, on a clock that stands still while any of them runs.
#[test]
fn a_thousand_wrong_tokens_and_keys_wait_for_each_other() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let state = State::new(config(MINUTE), Scoreboard::new(1).unwrap(), |_| None);
        let began = tokio::time::Instant::now();
        let guesses: Vec<_> = (0..50)
            .map(|client| {
                let state = state.clone();
                tokio::spawn(async move {
                    for number in 0..20 {
                        let mut guess = match number % 4 {
                            0 => get("/metrics", "", "box:1"),
                            1 => get("/dashboard.json", "", "box:1"),
                            2 => get("/actions/phased-restart", "", "box:1"),
                            _ => get("/open", &format!("key={client}-{number}"), "box:1"),
                        };
                        guess.token = Some(format!("{client}-{number}"));
                        let answer = crate::routes::answer(&guess, &listener(), &state).await;
                        assert!(matches!(answer.status, 401 | 403), "{}", answer.status);
                    }
                })
            })
            .collect();
        // Whoever has the token waits for nobody's guesses.
        tokio::task::yield_now().await;
        let right = AdminRequest {
            token: Some("0123456789abcdef".to_owned()),
            ..get("/dashboard.json", "", "box:1")
        };
        let answer = crate::routes::answer(&right, &listener(), &state).await;
        assert_eq!((answer.status, answer.to_known_client), (200, true));
        assert_eq!(began.elapsed(), Duration::ZERO);
        for guess in guesses {
            guess.await.unwrap();
        }
        assert!(began.elapsed() >= WRONG_TOKEN * 1000, "{:?}", began.elapsed());
    });
}

/// On the same clock.
#[test]
fn guesses_wait_on_half_of_the_connections_and_further_ones_are_refused() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let config = Config { connections_max: 4, ..config(MINUTE) };
        let state = State::new(config, Scoreboard::new(1).unwrap(), |_| None);
        let began = tokio::time::Instant::now();
        let guesses: Vec<_> = ["/metrics", "/", "/open", "/dashboard.json", "/metrics", "/open"]
            .map(|path| {
                let state = state.clone();
                let guess =
                    AdminRequest { token: Some("wrong".into()), ..get(path, "key=no", "box:1") };
                tokio::spawn(async move {
                    crate::routes::answer(&guess, &listener(), &state).await.status
                })
            })
            .into();
        let mut statuses = vec![];
        for guess in guesses {
            statuses.push(guess.await.unwrap());
        }
        assert_eq!(statuses, [401, 401, 429, 429, 429, 429]);
        assert_eq!(began.elapsed(), WRONG_TOKEN * 2);
        let right = AdminRequest {
            token: Some("0123456789abcdef".to_owned()),
            ..get("/metrics", "", "box:1")
        };
        assert_eq!(crate::routes::answer(&right, &listener(), &state).await.status, 200);
    });
}

struct ManyQueues;

impl crate::queues::QueueSource for ManyQueues {
    fn read(&mut self) -> Result<StoreSizes, String> {
        let queue =
            |number| QueueSize { name: format!("queue{number}"), size: 1, ..QueueSize::default() };
        Ok(StoreSizes {
            queues: (0..10_000).map(queue).collect(),
            sets: vec![("dead", 10_000)],
            outbox: None,
        })
    }
}

#[test]
fn ten_thousand_classes_topics_and_queues_are_bounded() {
    let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
    scoreboard.slot(0).counted.store(1, Relaxed);
    let own = OwnGauges::new(scoreboard.clone(), 0);
    for number in 0..10_000 {
        own.named::<ClassCounters>(&format!("Job{number}"), "default").done.fetch_add(1, Relaxed);
        let (topic, group) = (format!("topic{number}"), format!("group{number}"));
        own.named::<TopicCounters>(&topic, &group).records.fetch_add(1, Relaxed);
    }
    own.counters().topics[0].oldest_ms.store(1, Relaxed);
    own.counters().topics[0].rebalances.store(3, Relaxed);
    let shared = Scoreboard::open(scoreboard.fd()).unwrap();
    let open: crate::state::OpenStore = |_| Some((Box::new(ManyQueues), Box::new(Listed(vec![]))));
    let state = State::new(config(MINUTE), shared, open);
    let shown = crate::state::runtime().unwrap().block_on(document::document(&state));
    let names = |list: &Value| list.as_array().map_or(0, Vec::len);
    let (classes, topics) = (&shown["jobs"]["classes"], &shown["streams"]);
    assert_eq!((names(classes), names(topics)), (201, 201));
    let others = |list: &Value, name: &str, field: &str| {
        let other = list.as_array()?.iter().find(|one| one[name] == "other")?;
        other[field].as_u64()
    };
    assert_eq!(others(classes, "class", "done"), Some(9800));
    assert_eq!(others(topics, "topic", "records"), Some(9800));
    let first = topics.as_array().unwrap().iter().find(|one| one["topic"] == "topic0").unwrap();
    assert_eq!(first["rebalances"], 3);
    assert!(first["lag_age_s"].as_f64() > Some(1e9) && topics[2]["lag_age_s"] == 0.0, "{first}");
    let store = &shown["jobs"]["store"];
    assert_eq!((names(&store["queues"]), store["queues_total"].as_u64()), (200, Some(10_000)));
    assert!(shown.to_string().len() < 200_000, "{}", shown.to_string().len());
}

#[test]
fn a_call_to_a_store_that_hangs_does_not_hold_up_the_end_of_the_process() {
    struct Hangs;
    impl crate::queues::QueueSource for Hangs {
        fn read(&mut self) -> Result<StoreSizes, String> {
            loop {
                std::thread::park();
            }
        }
    }
    let open: crate::state::OpenStore = |_| Some((Box::new(Hangs), Box::new(Listed(vec![]))));
    let state = State::new(config(MINUTE), Scoreboard::new(1).unwrap(), open);
    let mounted = MountedDashboard::new(state.clone()).unwrap();
    let queues = state.queues.as_ref().unwrap();
    assert!(mounted.runtime.as_ref().unwrap().block_on(queues.read()).is_err());
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(mounted);
        done.send(())
    });
    assert_eq!(ended.recv_timeout(MINUTE), Ok(()));
}
