use super::*;
use crate::config::{AdminListener, Config};
use chaton_core::process::scoreboard::Scoreboard;

/// The answer of an endpoint that was told of the link `key`, valid for so long, to each of these requests.
fn answers(link: Duration, requests: &[AdminRequest]) -> Vec<Answer> {
    let dashboard =
        DashboardConfig { link, session: Duration::from_secs(60), ..Default::default() };
    let config = Config {
        listeners: vec![],
        token: None,
        hosts: vec![],
        connections_max: 1,
        timeout: Duration::from_secs(60),
        alive_timeout: None,
        queue_age_ms: 1000,
        lag_max: None,
        statsd: None,
        roles: vec![],
        dashboard,
        store: Value::Null,
    };
    let state = State::new(config, Scoreboard::new(1).unwrap(), |_| None);
    state.take(r#"{"link":"key"}"#).unwrap();
    let listener = AdminListener { fd: 0, unix: false, host: "box".to_owned(), open: true };
    let runtime = crate::server::runtime().unwrap();
    let answer = |request| runtime.block_on(crate::routes::answer(request, &listener, &state));
    requests.iter().map(answer).collect()
}

fn get(path: &str, query: &str, host: &str) -> AdminRequest {
    let [method, path, query] = ["GET", path, query].map(str::to_owned);
    AdminRequest { method, path, query, host: Some(host.to_owned()), ..AdminRequest::default() }
}

#[test]
fn a_link_opens_the_page_once_and_in_time_and_not_under_another_host() {
    let open = || get("/open", "key=key", "box:1");
    let minute = Duration::from_secs(60);
    let wrong = [
        get("/open", "key=kez", "box:1"),
        get("/open", "", "box:1"),
        get("/open", "key=key", "evil.example"),
    ];
    let requests: Vec<_> = wrong.into_iter().chain([open(), open()]).collect();
    let found = answers(minute, &requests);
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
    assert!(bytes <= 60 * 1024, "{bytes}");
}
