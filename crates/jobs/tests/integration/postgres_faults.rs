//! What becomes of jobs when PostgreSQL is killed, is away, is full of connections or refuses.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::postgres_server::{SmallDisk, TestPgBouncer, TestPostgres};
use crate::redis_engine::{push_one, start, Pusher};
use crate::redis_server::{free_port, tls};
use chaton_core::engine::{Engine as _, Feed};
use chaton_jobs::engine::{Engine, Job};
use chaton_jobs::outcome::Outcome;
use chaton_jobs::push_buffer::PushBuffer;
use chaton_jobs::store::{
    open, postgres, JobLocation, NewJob, Store, StoreErrorKind, StoreOptions,
};
use parking_lot::Mutex;

/// Kills of the server in one run, and in that of a night.
const KILLS: [u32; 2] = [3, 50];

fn options(server: &TestPostgres, database: &str) -> StoreOptions {
    StoreOptions::for_tests(server.url(database))
}

#[test]
fn no_job_is_lost_when_the_server_is_killed_under_load() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let options = options(&server, &database);
    let (engine, feed) = start(options.clone());
    let kills = KILLS[usize::from(std::env::var_os("CHATON_SOAK").is_some())];
    Pusher::during(&options, &feed, |pusher| {
        for _ in 0..kills {
            let before = pusher.stored();
            feed.wait_for("pushes go on", || pusher.stored() > before + 50);
            server.crash();
        }
    });
    println!("{} jobs ran through {kills} kills of the server", feed.ran());
    engine.stop();
}

#[test]
fn an_engine_that_starts_without_a_server_runs_jobs_once_it_is_there() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let options = options(&server, &database);
    push_one(&mut *open(&options).unwrap().store(), "a", None).unwrap();
    server.stop();
    let (engine, feed) = start(options.clone());
    feed.wait_for("a line about the server", || feed.lines_with("postgres") > 0);
    server.start_again();
    feed.wait_for("the job", || feed.ran() == 1);
    engine.stop();
}

#[test]
fn revoked_rights_are_named_and_come_back() {
    let server = TestPostgres::shared();
    let database = server.database();
    open(&options(server, &database)).unwrap().store().stats().unwrap();
    let sql = |text: &str| server.psql(&database, text).unwrap();
    sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA chaton TO app");
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA chaton TO app");
    sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA chaton TO app");
    let url = server.url(&database).replace("postgres@", "app@");
    let mut store = open(&StoreOptions::for_tests(url)).unwrap().store();
    push_one(&mut *store, "a", None).unwrap();
    assert!(store.advice().unwrap().iter().all(|line| !line.contains("rights")));
    sql("REVOKE INSERT ON chaton.jobs FROM app");
    let error = store
        .push(&[NewJob { queue: "q", payload: b"{}", at: None, lock: None, bid: None }])
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(
        error.message.contains("permission denied") && error.message.contains("chaton check"),
        "{error}"
    );
    let advice = store.advice().unwrap();
    assert!(advice.iter().any(|line| line.contains("INSERT on chaton.jobs")), "{advice:?}");
    sql("GRANT INSERT ON chaton.jobs TO app");
    push_one(&mut *store, "b", None).unwrap();
}

/// The tables of the first version, with a job in each place.
const FIRST: &str = r#"
    INSERT INTO chaton.queues(name) VALUES('q');
    INSERT INTO chaton.owners(identity, place, beat_at) VALUES('old:1:a', 'b 1 1 1 0 0', now() - interval '1 day');
    INSERT INTO chaton.jobs(place, queue, at, owner, ticket, payload)
    SELECT place, 'q', CASE WHEN place>1 THEN 1 END, CASE place WHEN 1 THEN 'old:1:a' END,
        CASE place WHEN 1 THEN 7 END, convert_to(format('{"class":"A","args":[],"jid":"%s","queue":"q"}', place), 'UTF8')
    FROM generate_series(0, 4) place;
"#;

#[test]
fn tables_of_the_first_version_are_brought_up_to_date() {
    let server = TestPostgres::shared();
    let database = server.database();
    let sql = |text: &str| server.psql(&database, text).unwrap();
    let steps = postgres::schema();
    sql(&format!("{}{};UPDATE chaton.version SET number=1;{FIRST}", steps[0], steps[1]));
    let lease = Duration::from_secs(5);
    let (engine, feed) = start(StoreOptions { lease, ..options(server, &database) });
    // All but the dead one.
    feed.wait_for("jobs of all places", || feed.ran() == 4);
    engine.stop();
    assert_eq!(sql("SELECT count(*), min(place) FROM chaton.jobs"), "1|4");
    assert_eq!(sql("SELECT number FROM chaton.version"), (steps.len() - 1).to_string());
}

/// What a later release does when its first process connects.
const LATER: &str = "BEGIN; SELECT pg_advisory_xact_lock(1128812110, 0); SET LOCAL lock_timeout='5s';
    DO $$ DECLARE t record; BEGIN FOR t IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace='chaton'::regnamespace AND relkind='r' LOOP
        EXECUTE format('ALTER TABLE %s ADD COLUMN later int NOT NULL DEFAULT 1', t.name); END LOOP; END $$;
    UPDATE chaton.version SET number=99; COMMIT";

#[test]
fn processes_of_two_releases_use_the_same_tables() {
    let server = TestPostgres::shared();
    let database = server.database();
    let options = options(server, &database);
    let (engine, feed) = start(options.clone());
    Pusher::during(&options, &feed, |pusher| {
        let more = || {
            let (stored, ran) = (pusher.stored(), feed.ran());
            feed.wait_for("jobs", || pusher.stored() > stored + 50 && feed.ran() > ran + 50);
        };
        more();
        server.psql(&database, LATER).unwrap();
        more();
        let mut again = open(&options).unwrap().store();
        assert_eq!(again.migrate().unwrap(), postgres::schema().len() as i64 - 1);
        again.stats().unwrap();
        assert_eq!(server.psql(&database, "SELECT number FROM chaton.version").unwrap(), "99");
        assert_eq!(pusher.failed.load(Ordering::Relaxed), 0);
    });
    assert_eq!(feed.lines_with(""), 0, "{:?}", feed.lines.lock());
    engine.stop();
}

#[test]
fn many_processes_make_the_tables_at_once() {
    let server = TestPostgres::shared();
    let database = server.database();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let options = options(server, &database);
            scope.spawn(move || {
                push_one(&mut *open(&options).unwrap().store(), &number.to_string(), None).unwrap();
            });
        }
    });
    assert_eq!(server.psql(&database, "SELECT count(*) FROM chaton.jobs").unwrap(), "8");
}

/// Keeps each job until the test ends it.
#[derive(Default)]
struct HeldJobs {
    begun: Mutex<Vec<Arc<Job>>>,
    lines: Mutex<Vec<String>>,
}

impl Feed<Job> for HeldJobs {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        job.start(0);
        self.begun.lock().push(job);
        Ok(())
    }
    fn idle_threads(&self) -> usize {
        4
    }
    fn warn(&self, line: &str) {
        self.lines.lock().push(line.into());
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_job_whose_claim_a_crash_has_lost_runs_once() {
    // Nothing but a commit that waits writes the log.
    let mut server = TestPostgres::start(&["-c", "wal_writer_delay=10000"]);
    let database = server.database();
    let options = options(&server, &database);
    let feed = Arc::new(HeldJobs::default());
    let config = crate::redis_engine::config(options.clone());
    let engine = Engine::start(config, &open(&options).unwrap(), feed.clone()).unwrap();
    let identity = engine.identity().to_string();
    let mut store = open(&options).unwrap().store();
    push_one(&mut *store, "a", None).unwrap();
    wait_for("the job", || feed.begun.lock().len() == 1);
    server.crash();
    let in_flight = |store: &mut dyn Store| store.in_flight(&identity).map_or(0, |jobs| jobs.len());
    wait_for("its entry", || in_flight(&mut *store) == 1);
    assert_eq!(store.stats().unwrap().enqueued, 0);
    let job = feed.begun.lock()[0].clone();
    assert!(job.finish(Outcome::Ack));
    wait_for("its end", || in_flight(&mut *store) == 0);
    push_one(&mut *store, "b", None).unwrap();
    wait_for("the next job", || feed.begun.lock().len() == 2);
    assert_eq!(feed.begun.lock()[1].document().jid(), "b");
    let job = feed.begun.lock()[1].clone();
    job.finish(Outcome::Ack);
    engine.stop();
}

#[test]
fn a_failover_to_a_synchronous_standby_loses_no_job() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let standby = server.standby();
    let set = "ALTER SYSTEM SET synchronous_standby_names='*'";
    server.psql("postgres", set).unwrap();
    server.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state='sync'";
    wait_for("the standby", || server.psql("postgres", is_sync).as_deref() == Some("1"));
    let folders = format!("{}&host={}", server.folder.display(), standby.folder.display());
    let url =
        format!("postgres://postgres@/{database}?host={folders}&target_session_attrs=read-write");
    let options = StoreOptions::for_tests(url);
    let (engine, feed) = start(options.clone());
    Pusher::during(&options, &feed, |pusher| {
        feed.wait_for("pushes", || pusher.stored() > 100);
        server.stop();
        standby.psql("postgres", "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
        standby.psql("postgres", "SELECT pg_reload_conf(), pg_promote()").unwrap();
        let before = pusher.stored();
        feed.wait_for("pushes go on", || pusher.stored() > before + 100);
    });
    println!("{} jobs ran", feed.ran());
    engine.stop();
}

#[test]
fn reliable_push_keeps_jobs_while_the_server_is_away() {
    let mut server = TestPostgres::start(&["-c", "fsync=off"]);
    let database = server.database();
    let mut options = options(&server, &database);
    options.reliable_push = Some(1 << 20);
    options.reliable_push_timeout = Duration::from_secs(60);
    let factory = open(&options).unwrap();
    let (mut store, buffer) = (factory.store(), PushBuffer::new(&factory, &options).unwrap());
    let mut push = |number: u32| {
        let payload = format!(r#"{{"class":"A","args":[],"jid":"{number}","queue":"q"}}"#);
        let payload = payload.as_bytes();
        let job = [NewJob { queue: "q", payload, at: None, lock: None, bid: None }];
        let pushed = match buffer.push_behind(&job) {
            Some(kept) => kept,
            None => buffer.push(&mut *store, &job),
        };
        pushed.unwrap();
    };
    (0..10).for_each(&mut push);
    server.stop();
    (10..500).for_each(&mut push);
    server.start_again();
    (500..600).for_each(&mut push);
    assert_eq!(buffer.finish(Duration::ZERO), None);
    let mut reader = open(&options).unwrap().store();
    let all = reader.list(&JobLocation::Queue("q".into()), 0, 1000).unwrap();
    let jids: Vec<u32> = all
        .iter()
        .map(|entry| {
            let text = String::from_utf8_lossy(&entry.payload).into_owned();
            text.split("\"jid\":\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(jids, (0..600).collect::<Vec<u32>>());
}

/// What an asynchronous standby has not got is lost. The engine says so of the jobs that it has in hand, and keeps them.
#[test]
fn jobs_in_hand_outlive_a_failover_to_a_standby_that_lags() {
    let mut server = TestPostgres::start(&[]);
    let database = server.database();
    let standby = server.standby();
    let folders = format!("{}&host={}", server.folder.display(), standby.folder.display());
    let url =
        format!("postgres://postgres@/{database}?host={folders}&target_session_attrs=read-write");
    let options = StoreOptions::for_tests(url);
    let feed = Arc::new(HeldJobs::default());
    let config = crate::redis_engine::config(options.clone());
    let engine = Engine::start(config, &open(&options).unwrap(), feed.clone()).unwrap();
    let mut store = open(&options).unwrap().store();
    push_one(&mut *store, "claimed before", None).unwrap();
    wait_for("the first job", || feed.begun.lock().len() == 1);
    let place = "SELECT pg_current_wal_insert_lsn()"; // claims are written to the log later
    let reached = server.psql("postgres", place).unwrap();
    let has_it = format!("SELECT pg_last_wal_replay_lsn()>='{reached}'");
    wait_for("the standby", || standby.psql("postgres", &has_it).as_deref() == Some("t"));
    standby.psql("postgres", "ALTER SYSTEM SET primary_conninfo=''").unwrap();
    standby.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    let streams = "SELECT count(*) FROM pg_stat_replication";
    wait_for("its lag", || server.psql("postgres", streams).as_deref() == Some("0"));
    push_one(&mut *store, "pushed and claimed after", None).unwrap();
    wait_for("the second job", || feed.begun.lock().len() == 2);
    server.stop();
    standby.psql("postgres", "SELECT pg_promote()").unwrap();
    let in_flight = |store: &mut dyn Store| store.stats().map_or(0, |stats| stats.in_flight);
    wait_for("both are in flight", || in_flight(&mut *store) == 2);
    let said = "the store lost its last writes: 1 jobs that are in hand";
    wait_for("a line", || feed.lines.lock().iter().any(|line| line.contains(said)));
    for job in feed.begun.lock().iter() {
        assert!(job.finish(Outcome::Ack));
    }
    wait_for("their ends", || in_flight(&mut *store) == 0);
    engine.stop();
}

/// With this isolation the server ends statements that meet others, which are tried again.
#[test]
fn no_job_is_lost_where_transactions_are_serializable() {
    let server = TestPostgres::shared();
    let database = server.database();
    let set = format!("ALTER DATABASE {database} SET default_transaction_isolation='serializable'");
    server.psql("postgres", &set).unwrap();
    let options = options(server, &database);
    let engines = [start(options.clone()), start(options.clone())];
    let documents: Vec<String> =
        (0..400).map(|n| format!(r#"{{"class":"A","args":[],"jid":"{n}","queue":"q"}}"#)).collect();
    std::thread::scope(|scope| {
        for some in documents.chunks(100) {
            let options = &options;
            scope.spawn(move || {
                let mut store = open(options).unwrap().store();
                for one in some {
                    let payload = one.as_bytes();
                    let job = NewJob { queue: "q", payload, at: None, lock: None, bid: None };
                    store.push(&[job]).unwrap();
                }
            });
        }
    });
    let ran = || engines.iter().map(|(_, feed)| feed.ran()).sum::<usize>();
    wait_for("all jobs", || ran() == documents.len());
    engines.iter().for_each(|(engine, _)| engine.stop());
}

#[test]
fn no_job_is_lost_when_the_bouncer_is_killed() {
    let server = TestPostgres::shared();
    let database = server.database();
    let mut bouncer = TestPgBouncer::start(server);
    let mut options = StoreOptions::for_tests(bouncer.url(&database));
    options.listen = Some(server.url(&database));
    let (engine, feed) = start(options.clone());
    let kills = KILLS[usize::from(std::env::var_os("CHATON_SOAK").is_some())];
    Pusher::during(&options, &feed, |pusher| {
        for _ in 0..kills {
            let before = pusher.stored();
            feed.wait_for("pushes", || pusher.stored() > before + 50);
            bouncer.kill();
            let failed = pusher.failed.load(Ordering::Relaxed);
            feed.wait_for("a failed push", || pusher.failed.load(Ordering::Relaxed) > failed);
            bouncer.start_again();
        }
    });
    println!("{} jobs ran through {kills} kills of the bouncer", feed.ran());
    engine.stop();
}

#[test]
fn a_full_disk_refuses_jobs_and_those_that_are_stored_run() {
    let server = TestPostgres::shared();
    let disk = SmallDisk::mount(24);
    let space = format!("CREATE TABLESPACE small LOCATION '{}'", disk.folder.display());
    server.psql("postgres", &space).unwrap();
    let database = server.database();
    server.psql("postgres", &format!("ALTER DATABASE {database} SET TABLESPACE small")).unwrap();
    let options = options(server, &database);
    let mut store = open(&options).unwrap().store();
    // It does not shrink when the server compresses it.
    let text: String = (0..50_000).map(|_| fastrand::alphanumeric()).collect();
    let mut stored = 0;
    let error = loop {
        let payload = format!(r#"{{"class":"A","args":["{text}"],"jid":"{stored}","queue":"q"}}"#);
        let job =
            NewJob { queue: "q", payload: payload.as_bytes(), at: None, lock: None, bid: None };
        match store.push(&[job]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the disk does not get full");
    };
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    let (engine, feed) = start(options.clone());
    disk.resize(96);
    feed.wait_for("all jobs", || feed.ran() == stored);
    push_one(&mut *store, "after", None).unwrap();
    feed.wait_for("a new job", || feed.ran() == stored + 1);
    engine.stop();
    drop((store, engine));
    server.drop_database(&database);
    server.psql("postgres", "DROP TABLESPACE small").unwrap();
}

#[test]
fn a_statement_without_an_answer_in_time_is_ended() {
    let server = TestPostgres::shared();
    let database = server.database();
    let mut options = options(server, &database);
    options.answer_timeout = Duration::from_millis(300);
    let mut store = open(&options).unwrap().store();
    push_one(&mut *store, "a", None).unwrap();
    let lock = "BEGIN; LOCK TABLE chaton.jobs; SELECT pg_sleep(60)";
    let mut other = server.session(&database, lock);
    let sessions = |what: &str| {
        let sql =
            format!("SELECT count(*) FROM pg_stat_activity WHERE datname='{database}' AND {what}");
        server.psql("postgres", &sql).unwrap()
    };
    wait_for("the lock", || sessions("query LIKE '%pg_sleep%' AND wait_event='PgSleep'") == "1");
    let error = push_one(&mut *store, "b", None).unwrap_err();
    assert_eq!(error, StoreErrorKind::Unavailable);
    let began = Instant::now();
    wait_for("its end", || sessions("wait_event_type='Lock'") == "0");
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the lock");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// How fast an idle engine starts jobs, and how many connections and statements it has meanwhile.
#[test]
fn an_idle_engine_has_two_connections_and_starts_a_job_at_once() {
    let server = TestPostgres::shared();
    let database = server.database();
    let options = options(server, &database);
    let (engine, feed) = start(options.clone());
    let mut store = open(&options).unwrap().store();
    let mut times = Vec::new();
    for number in 0..100 {
        let began = Instant::now();
        push_one(&mut *store, &number.to_string(), None).unwrap();
        while feed.ran() <= number {
            assert!(began.elapsed() < Duration::from_secs(20), "job {number} does not start");
            std::thread::sleep(Duration::from_micros(50));
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("push to start: median {:?}, p99 {:?}", times[50], times[98]);
    assert!(times[50] < Duration::from_millis(200), "it does not listen: {times:?}");
    drop(store);
    let own = format!("SELECT count(*) FROM pg_stat_activity WHERE datname='{database}'");
    let began = Instant::now();
    // One listens, one is for all else; those of busy moments are closed after a while.
    while server.psql("postgres", &own).unwrap().parse::<u32>().unwrap() > 2 + 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", server.psql("postgres", &own));
        std::thread::sleep(Duration::from_millis(100));
    }
    engine.stop();
}

#[test]
fn a_burst_of_jobs_runs_once_each() {
    let server = TestPostgres::shared();
    let options = options(server, &server.database());
    let mut store = open(&options).unwrap().store();
    let documents: Vec<String> = (0..20_000)
        .map(|n| format!(r#"{{"class":"A","args":[],"jid":"{n}","queue":"q"}}"#))
        .collect();
    let jobs: Vec<NewJob<'_>> = documents
        .iter()
        .map(|one| NewJob { queue: "q", payload: one.as_bytes(), at: None, lock: None, bid: None })
        .collect();
    let began = Instant::now();
    jobs.chunks(1000).for_each(|some| drop(store.push(some).unwrap()));
    let pushed = began.elapsed();
    let began = Instant::now();
    let (engine, feed) = start(options.clone());
    feed.wait_for("all jobs", || feed.ran() == documents.len());
    let drained = began.elapsed();
    engine.stop();
    let rate = |time: Duration| documents.len() as f64 / time.as_secs_f64();
    println!("pushed by 1,000: {:.0}/s, drained: {:.0}/s", rate(pushed), rate(drained));
    let ran: HashSet<String> = feed.ran.lock().clone();
    assert_eq!(ran.len(), documents.len());
    assert_eq!(store.stats().unwrap().in_flight, 0);
}

#[test]
fn the_certificate_of_the_server_is_checked_where_the_address_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    tls::certificates(dir.path());
    let port = free_port();
    let server = TestPostgres::start_tls(dir.path(), port);
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE ssl AND application_name = 'chaton'";
    let ca = dir.path().join("ca.pem").display().to_string();
    let address = |query: &str| format!("postgres://postgres@localhost:{port}/postgres{query}");
    let with_ca = address(&format!("?sslmode=verify-full&sslrootcert={ca}"));
    for url in [address(""), with_ca] {
        let factory = open(&StoreOptions::for_tests(url.clone())).unwrap();
        // It keeps its connection.
        let mut store = factory.store();
        push_one(&mut *store, "1", None).unwrap();
        assert_ne!(server.psql("postgres", encrypted).as_deref(), Some("0"), "{url}");
    }
    let mut options = StoreOptions::for_tests(address("?sslmode=require"));
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains("sslrootcert"), "{error}");
    options.tls_verify = false;
    push_one(&mut *open(&options).unwrap().store(), "2", None).unwrap();
    // Of another authority.
    let other = tempfile::tempdir().unwrap();
    tls::certificates(other.path());
    options = StoreOptions::for_tests(address(""));
    options.tls_ca_file = Some(other.path().join("ca.pem").display().to_string());
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    let missing = address("?sslmode=verify-full&sslrootcert=/none.pem");
    let error = open(&StoreOptions::for_tests(missing)).err().unwrap();
    assert!(error.message.contains("/none.pem"), "{error}");
}
