//! Static files over real sockets.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{answer, pattern, Client, Server};
use chaton_web::StaticSettings;

/// A server of a directory, whose application answers with its own name.
struct Site {
    root: tempfile::TempDir,
    server: Server,
    /// Requests that reached the application.
    calls: Arc<AtomicUsize>,
}

impl Site {
    fn new(set: impl FnOnce(&mut StaticSettings)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut settings = StaticSettings::for_tests(root.path());
        set(&mut settings);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let server = Server::with(
            |config| config.static_files = Some(settings),
            move |exchange| {
                counted.fetch_add(1, SeqCst);
                answer(exchange, b"application");
            },
        );
        Self { root, server, calls }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn connect(&self) -> Client {
        self.server.connect()
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{lines}\r\n")
}

fn age(path: &Path, modified_s: u64) {
    let at = UNIX_EPOCH + Duration::from_secs(modified_s);
    File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn a_file_is_answered_and_everything_else_reaches_the_application() {
    let site = Site::new(|_| {});
    site.write("app.css", "body{}");
    site.write("data.bin", [0, 1, 2]);
    site.write("empty.css", "");
    age(&site.root.path().join("app.css"), 784_111_777);
    let mut client = site.connect();
    let reply = client.get("/app.css?v=1").reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "body{}"));
    assert_eq!(reply.header("content-type"), Some("text/css"));
    assert_eq!(reply.header("content-length"), Some("6"));
    assert_eq!(reply.header("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert!(reply.header("etag").unwrap().starts_with('"') && reply.header("date").is_some());
    assert_eq!((reply.header("vary"), reply.header("cache-control")), (None, None));
    let unknown = client.get("/data.bin").reply();
    assert_eq!(unknown.header("content-type"), Some("text/plain"));
    assert_eq!(unknown.body, [0, 1, 2]);
    assert_eq!(client.get("/empty.css").reply().header("content-length"), Some("0"));
    assert_eq!(site.calls.load(SeqCst), 0);
    for sent in [
        request("GET", "/missing", &[]),
        request("GET", "/", &[]),
        request("POST", "/app.css", &[("Content-Length", "0")]),
        request("OPTIONS", "/app.css", &[]),
        request("DELETE", "/app.css", &[]),
        request("get", "/app.css", &[]),
        request("GET", "/app.css", &[("Content-Length", "1")]) + "x",
    ] {
        assert_eq!(client.send(&sent).reply().text(), "application", "{sent}");
    }
    assert_eq!(site.calls.load(SeqCst), 7);
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let site = Site::new(|_| {});
    site.write("app.css", "body{}");
    site.write("large.css", vec![b'x'; 100_000]);
    let mut client = site.connect();
    for (path, len) in [("/app.css", "6"), ("/large.css", "100000")] {
        let get = client.get(path).reply();
        client.send(request("HEAD", path, &[("Range", "bytes=0-1")]));
        let head = client.reply_to_head();
        assert_eq!((head.status, head.header("content-length")), (200, Some(len)));
        for name in ["content-type", "etag", "last-modified", "accept-ranges"] {
            assert_eq!(head.header(name), get.header(name), "{name}");
        }
    }
    // Nothing of a body came behind the heads.
    assert_eq!(client.get("/app.css").reply().text(), "body{}");
}

#[test]
fn another_content_of_the_same_length_and_time_is_another_version() {
    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (modified_s, is_dated) in [(784_111_777, true), (0, false), (1, false)] {
        let site = Site::new(|_| {});
        let mut client = site.connect();
        let mut put = |content: u8, len, headers: &[(&str, &str)]| {
            site.write("a.css", vec![content; len]);
            age(&site.root.path().join("a.css"), modified_s);
            client.send(request("GET", "/a.css", headers)).reply()
        };
        let first = put(b'a', 10, &[]);
        let etag = first.header("etag").unwrap().to_owned();
        assert_eq!(first.header("last-modified").is_some(), is_dated);
        let second = put(b'b', 10, &[("If-None-Match", &etag)]);
        assert_eq!((second.status, second.text().as_str()), (200, "bbbbbbbbbb"));
        assert_ne!(second.header("etag"), Some(&*etag));
        assert_eq!(put(b'a', 10, &[("If-None-Match", &etag)]).status, 304);
        assert_eq!(
            put(b'a', 10, &[("If-Modified-Since", OLD)]).status,
            if is_dated { 304 } else { 200 }
        );
        // What is not in memory has a version only by its time.
        let large = put(b'a', 100_000, &[("If-None-Match", "\"\", "), ("Range", "bytes=0-1")]);
        assert_eq!(large.status, 206);
        for name in ["etag", "last-modified"] {
            assert_eq!(large.header(name).is_some(), is_dated, "{name} {modified_s}");
        }
        for name in ["If-Modified-Since", "If-Range"] {
            let headers = [(name, OLD), ("Range", "bytes=0-1")];
            let status = if is_dated { [304, 206] } else { [206, 200] };
            let reply = put(b'a', 100_000, &headers);
            assert_eq!(reply.status, status[usize::from(name == "If-Range")], "{name}");
        }
        assert_eq!(put(b'a', 100_000, &[("If-None-Match", "*")]).status, 304);
        assert_eq!(put(b'a', 100_000, &[("If-Match", "\"\"")]).status, 412);
    }
}

#[test]
fn conditions_are_answered_304_and_412() {
    let site = Site::new(|_| {});
    site.write("app.css", "body{}");
    let mut client = site.connect();
    let first = client.get("/app.css").reply();
    let (etag, date) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    for (name, value) in [("If-None-Match", etag), ("If-Modified-Since", date)] {
        let reply = client.send(request("GET", "/app.css", &[(name, value)])).reply();
        assert_eq!((reply.status, reply.header("etag")), (304, Some(etag)), "{name}");
        assert_eq!((reply.header("content-length"), reply.header("content-type")), (None, None));
    }
    let reply = client.send(request("GET", "/app.css", &[("If-Match", "\"other\"")])).reply();
    assert_eq!((reply.status, reply.body.len()), (412, 0));
    site.write("app.css", "body{color:red}");
    let reply = client.send(request("GET", "/app.css", &[("If-None-Match", etag)])).reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "body{color:red}"));
    assert_ne!(reply.header("etag"), Some(etag));
}

#[test]
fn one_range_is_answered_206_and_several_get_the_whole() {
    let site = Site::new(|_| {});
    let small: Vec<u8> = (0..100).collect();
    let large = pattern(1_000_000);
    site.write("small.bin", &small);
    site.write("large.bin", &large);
    let mut client = site.connect();
    for (path, bytes) in [("/small.bin", &small), ("/large.bin", &large)] {
        let len = bytes.len();
        let etag = client.get(path).reply().header("etag").unwrap().to_owned();
        for (range, start, end) in
            [("bytes=10-19", 10, 20), ("bytes=90-", 90, len), ("bytes=-5", len - 5, len)]
        {
            let headers = [("Range", range), ("If-Range", etag.as_str())];
            let reply = client.send(request("GET", path, &headers)).reply();
            assert_eq!(reply.status, 206, "{path} {range}");
            let expected = format!("bytes {start}-{}/{len}", end - 1);
            assert_eq!(reply.header("content-range"), Some(expected.as_str()));
            assert!(reply.body == bytes[start..end], "{path} {range}");
        }
        let beyond = format!("bytes={len}-");
        let reply = client.send(request("GET", path, &[("Range", &beyond)])).reply();
        assert_eq!((reply.status, reply.body.len()), (416, 0));
        assert_eq!(reply.header("content-range"), Some(format!("bytes */{len}").as_str()));
        for headers in [
            &[("Range", "bytes=0-1,4-5")][..],
            &[("Range", "bytes=5-1")],
            &[("Range", "bytes=0-1"), ("If-Range", "\"other\"")],
            &[("Range", "bytes=0-1"), ("If-Range", "Sun, 06 Nov 1994 08:49:37 GMT")],
        ] {
            let reply = client.send(request("GET", path, headers)).reply();
            assert_eq!((reply.status, reply.body.len()), (200, len), "{headers:?}");
        }
    }
}

#[test]
fn compressed_files_are_chosen_by_accept_encoding() {
    let site = Site::new(|_| {});
    for (name, bytes) in [
        ("app.css", "plain"),
        ("app.css.br", "as br"),
        ("app.css.gz", "as gzip"),
        ("photo.png", "plain"),
        ("photo.png.gz", "as gzip"),
    ] {
        site.write(name, bytes);
    }
    let mut client = site.connect();
    let mut etags = Vec::new();
    for (accepts, text, coding) in [
        ("gzip, deflate, br, zstd", "as br", Some("br")),
        ("gzip;q=1, br;q=0.5", "as gzip", Some("gzip")),
        ("zstd", "plain", None),
        ("br;q=0, gzip;q=0", "plain", None),
    ] {
        let sent = request("GET", "/app.css", &[("Accept-Encoding", accepts)]);
        let reply = client.send(sent).reply();
        assert_eq!((reply.text().as_str(), reply.header("content-encoding")), (text, coding));
        assert_eq!(reply.header("content-type"), Some("text/css"));
        assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        etags.push(reply.header("etag").unwrap().to_owned());
    }
    assert_eq!(etags[2], etags[3]);
    etags.dedup();
    assert_eq!(etags.len(), 3);
    let sent = request("GET", "/photo.png", &[("Accept-Encoding", "gzip")]);
    assert_eq!(client.send(sent).reply().text(), "plain", "an image is not compressed further");
}

#[test]
fn cache_control_depends_on_the_name_unless_the_settings_say_otherwise() {
    let site = Site::new(|settings| settings.cache_control = Some("no-cache".to_owned()));
    site.write("assets/app-1a2b3c4d.css", "");
    site.write("robots.txt", "");
    let mut client = site.connect();
    let immutable = client.get("/assets/app-1a2b3c4d.css").reply();
    assert_eq!(immutable.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(client.get("/robots.txt").reply().header("cache-control"), Some("no-cache"));

    let headers = [("cache-control", "public, max-age=60"), ("x-own", "1"), ("ETag", "refused")];
    let site = Site::new(|settings| {
        settings.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    });
    site.write("assets/app-1a2b3c4d.css", "");
    let reply = site.connect().get("/assets/app-1a2b3c4d.css").reply();
    assert_eq!(reply.header("cache-control"), Some("public, max-age=60"));
    assert_eq!(reply.header("x-own"), Some("1"));
    assert_eq!(reply.head.matches("tag:").count() + reply.head.matches("Tag:").count(), 1);
}

#[test]
fn a_file_is_answered_as_it_was_found_until_it_is_compared_with_the_disk() {
    let site = Site::new(|settings| settings.fresh = Duration::from_secs(3600));
    site.write("app.css", "old");
    let mut client = site.connect();
    // The first lookup may have been on another thread; it is kept in either case.
    assert_eq!(client.get("/app.css").reply().text(), "old");
    site.write("app.css", "newer");
    assert_eq!(client.get("/app.css").reply().text(), "old");

    let site = Site::new(|_| {});
    site.write("app.css", "old");
    let mut client = site.connect();
    assert_eq!(client.get("/app.css").reply().text(), "old");
    site.write("app.css", "newer");
    assert_eq!(client.get("/app.css").reply().text(), "newer");
    fs::remove_file(site.root.path().join("app.css")).unwrap();
    assert_eq!(client.get("/app.css").reply().text(), "application");
}

#[test]
fn a_large_file_that_changed_is_not_sent_with_the_old_length() {
    let site = Site::new(|settings| settings.fresh = Duration::from_secs(3600));
    site.write("large.bin", vec![1; 100_000]);
    let mut client = site.connect();
    assert_eq!(client.get("/large.bin").reply().body.len(), 100_000);
    site.write("large.bin", vec![2; 200_000]);
    let reply = client.get("/large.bin").reply();
    assert!(reply.body == vec![2; 200_000], "{}", reply.head);
}

/// Larger than all buffers of a connection on loopback.
const HUGE: usize = 32 << 20;

#[test]
fn a_file_that_is_truncated_while_it_is_sent_closes_the_connection() {
    let site = Site::new(|_| {});
    site.write("huge.bin", vec![7; HUGE]);
    let mut client = site.connect();
    client.get("/huge.bin").bytes(1000);
    let file = File::options().write(true).open(site.root.path().join("huge.bin")).unwrap();
    file.set_len(2000).unwrap();
    // No error of the socket, an end: fewer bytes than were promised.
    assert!(client.rest().len() < HUGE);
    assert_eq!(site.connect().get("/huge.bin").reply().body.len(), 2000);
}

#[test]
fn a_file_that_is_replaced_while_it_is_sent_is_sent_as_it_was() {
    let site = Site::new(|_| {});
    site.write("huge.bin", vec![7; HUGE]);
    let mut client = site.connect();
    client.get("/huge.bin");
    // The response has begun.
    client.socket.peek(&mut [0]).unwrap();
    site.write("new.bin", "new");
    let at = |name: &str| site.root.path().join(name);
    fs::rename(at("new.bin"), at("huge.bin")).unwrap();
    let reply = client.reply();
    assert!(reply.body == vec![7; HUGE]);
    assert_eq!(client.get("/huge.bin").reply().text(), "new");
}

#[test]
fn over_plain_http_nothing_is_answered_that_is_for_https() {
    let site = Site::new(|settings| settings.https_only = true);
    site.write("app.css", "body{}");
    let mut client = site.connect();
    assert_eq!(client.get("/app.css").reply().text(), "application");
    let secure = request("GET", "/app.css", &[("X-Forwarded-Proto", "https")]);
    assert_eq!(client.send(secure).reply().text(), "body{}");
}

#[test]
fn some_files_are_answered_over_plain_http_without_a_policy_for_https() {
    let site = Site::new(|settings| {
        settings.https_only = true;
        settings.https_only_except = vec!["/.well-known/*".to_owned(), "/up.html".to_owned()];
        settings.headers = vec![("strict-transport-security".to_owned(), "max-age=1".to_owned())];
    });
    for name in [".well-known/acme-challenge/token", "up.html", "upper.html"] {
        site.write(name, name);
    }
    let mut client = site.connect();
    for (path, text) in [
        ("/.well-known/acme-challenge/token", ".well-known/acme-challenge/token"),
        ("/up.html", "up.html"),
        ("/upper.html", "application"),
    ] {
        let reply = client.get(path).reply();
        assert_eq!(reply.text(), text);
        assert_eq!(reply.header("strict-transport-security"), None);
    }
    for (schemes, policy) in [("https", true), ("HTTPS, https", true), ("https, http", false)] {
        let sent = request("GET", "/up.html", &[("X-Forwarded-Proto", schemes)]);
        let reply = client.send(sent).reply();
        assert_eq!(reply.header("strict-transport-security").is_some(), policy, "{schemes}");
    }
}

#[test]
fn no_cache_is_told_to_keep_an_error() {
    let site = Site::new(|settings| {
        let headers = [("cache-control", "public, max-age=60"), ("Expires", "0"), ("x-own", "1")];
        settings.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    });
    site.write("app.css", "body{}");
    let mut client = site.connect();
    for (status, name, value) in [
        (200, "Accept", "*/*"),
        (206, "Range", "bytes=0-1"),
        (304, "If-None-Match", "*"),
        (412, "If-Match", "\"other\""),
        (416, "Range", "bytes=9-"),
    ] {
        let reply = client.send(request("GET", "/app.css", &[(name, value)])).reply();
        assert_eq!((reply.status, reply.header("x-own")), (status, Some("1")));
        let is_kept = status < 400;
        assert_eq!(reply.header("cache-control").is_some(), is_kept, "{status}");
        assert_eq!(reply.header("expires").is_some(), is_kept, "{status}");
    }
}

#[test]
fn pipelined_requests_for_files_and_for_the_application_keep_their_order() {
    let site = Site::new(|_| {});
    site.write("app.css", "body{}");
    site.write("large.bin", vec![7; 100_000]);
    let mut client = site.connect();
    let paths = ["/app.css", "/x", "/large.bin", "/app.css", "/y", "/large.bin"];
    client.send(paths.map(|path| request("GET", path, &[])).concat());
    let lengths = paths.map(|_| client.reply().body.len());
    assert_eq!(lengths, [6, 11, 100_000, 6, 11, 100_000]);
}

#[test]
fn a_file_that_grows_forever_is_still_answered_whole_or_by_the_application() {
    let site = Site::new(|_| {});
    site.write("log.txt", "line\n");
    let path = site.root.path().join("log.txt");
    let mut log = File::options().append(true).open(path).unwrap();
    let mut client = site.connect();
    for _ in 0..200 {
        log.write_all(b"line\n").unwrap();
        let reply = client.get("/log.txt").reply();
        assert!(
            reply.text() == "application" || reply.body.len().is_multiple_of(5),
            "{}",
            reply.text()
        );
    }
}
