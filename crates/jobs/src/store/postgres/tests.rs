//! The conformance suite, and tests of what only PostgreSQL does.

#[path = "../../../tests/integration/postgres_server/mod.rs"]
pub(crate) mod postgres_server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Mode;
use super::*;
use crate::document::Document;
use crate::outcome::{Ack, Outcome, SideEffects};
use crate::store::conformance::conformance;
use crate::store::*;
use postgres_server::{TestPgBouncer, TestPostgres};

/// Longer than it takes a notification to come.
const SHORT: Duration = Duration::from_millis(300);

/// A store whose database is removed when it is dropped.
struct TemporaryStore {
    factory: Arc<dyn StoreFactory>,
    database: String,
}

impl TemporaryStore {
    fn new(tune: impl Fn(&mut StoreOptions)) -> Self {
        let server = TestPostgres::shared();
        let database = server.database();
        let mut options = StoreOptions::for_tests(server.url(&database));
        tune(&mut options);
        Self { factory: factory(&options).unwrap(), database }
    }
}

impl Drop for TemporaryStore {
    fn drop(&mut self) {
        TestPostgres::shared().drop_database(&self.database);
    }
}

impl StoreFactory for TemporaryStore {
    fn store(&self) -> Box<dyn Store> {
        self.factory.store()
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        self.factory.watch()
    }

    fn address(&self) -> &str {
        self.factory.address()
    }
}

/// With what a later release adds to each table: its processes run beside those of this one.
fn fresh() -> Arc<dyn StoreFactory> {
    let store = TemporaryStore::new(|_| {});
    bring_up_to_date(&store).unwrap();
    Arc::new(store)
}

conformance!(fresh);

#[test]
fn each_number_has_its_place() {
    crate::store::conformance::priorities::each_number_has_its_place(&fresh);
}

#[test]
fn a_store_that_does_not_listen_sees_a_push() {
    let store = TemporaryStore::new(|options| options.listen = Some("off".into()));
    let mut watch = store.watch();
    assert!(!watch.arm(&["q".into()]).unwrap().ready);
    let job = NewJob { queue: "q", payload: b"{}", at: None, lock: None, bid: None };
    store.store().push(&[job]).unwrap();
    let event = watch.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(event, StoreEvent::Interrupted);
    assert!(watch.arm(&["q".into()]).unwrap().ready);
}

/// Claims begin behind the jobs that are gone. A push whose commit comes late is before that.
#[test]
fn a_job_whose_push_commits_long_after_the_others_is_claimed() {
    let store = TemporaryStore::new(|_| {});
    let (mut jobs, mut watch) = (store.store(), store.watch());
    let (queues, payload) = (["q".into()], b"{}");
    let job = NewJob { queue: "q", payload, at: None, lock: None, bid: None };
    let mut first_ticket = 0;
    let mut claim = |jobs: &mut Box<dyn Store>| {
        first_ticket += 1;
        let request = ClaimRequest { queues: &queues, count: 1, first_ticket };
        jobs.claim("me", &request).unwrap().jobs
    };
    jobs.push(&[job]).unwrap();
    claim(&mut jobs);
    let server = TestPostgres::shared();
    let sql = "BEGIN; INSERT INTO chaton.jobs(place, queue, payload) VALUES(0, 'q', 'late');
        SELECT pg_advisory_lock(7); COMMIT";
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(7); SELECT pg_sleep(600)";
    let sleeps = "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objid=7 AND";
    let wait_for = |condition: &str| {
        let began = Instant::now();
        while server.psql(&store.database, &format!("{sleeps} {condition}")).as_deref() != Some("1")
        {
            assert!(began.elapsed() < Duration::from_secs(20), "{condition}");
        }
    };
    let mut holder = server.session(&store.database, lock);
    wait_for("granted");
    let mut late = server.session(&store.database, sql);
    wait_for("NOT granted");
    let floor = |jobs: &mut Box<dyn Store>, claim: &mut dyn FnMut(&mut Box<dyn Store>) -> _| {
        for _ in 0..3 {
            jobs.push(&[job]).unwrap();
            let claimed: Vec<ClaimedJob> = claim(jobs);
            assert_eq!(claimed.len(), 1);
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    floor(&mut jobs, &mut claim);
    // What was told so far.
    while watch.arm(&queues).is_ok() && watch.wait(SHORT).unwrap() != StoreEvent::Timeout {}
    holder.kill().unwrap();
    holder.wait().unwrap();
    server.psql(&store.database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid<>pg_backend_pid()");
    late.wait().unwrap();
    assert!(claim(&mut jobs).is_empty(), "it is above the floor");
    assert!(!watch.arm(&queues).unwrap().ready, "nobody has told of it");
    assert_eq!(watch.wait(tree::LOOK_EVERY).unwrap(), StoreEvent::Interrupted);
    assert!(watch.arm(&queues).unwrap().ready, "the watch has not found it");
    assert_eq!(claim(&mut jobs)[0].payload, b"late");
    assert!(!watch.arm(&queues).unwrap().ready);
}

/// Pushes a job and claims it, as a process does whose watch is told.
fn push_and_claim(
    factory: &PostgresFactory,
    ticket: u64,
    acked: &[u64],
) -> Result<Vec<ClaimedJob>> {
    let mut jobs = factory.store();
    let payload = ticket.to_string();
    let job = NewJob { queue: "q", payload: payload.as_bytes(), at: None, lock: None, bid: None };
    jobs.push(&[job])?;
    factory.server.note_told("q");
    let ack = |ticket: &u64| Ack {
        ticket: *ticket,
        queue: "q".into(),
        outcome: Outcome::Ack,
        effects: None,
    };
    let acks: Vec<Ack> = acked.iter().map(ack).collect();
    let request = ClaimRequest { queues: &["q".into()], count: 1, first_ticket: ticket };
    let reply = jobs.ack_and_claim("me", &acks, Some(&request))?;
    assert_eq!(reply.fenced, 0);
    Ok(reply.jobs)
}

fn factory_at(url: String) -> PostgresFactory {
    let options = StoreOptions::for_tests(url);
    let address = PostgresAddress::read(&options).unwrap();
    PostgresFactory { server: Arc::new(Server::new(address, Arc::new(options))) }
}

#[test]
fn claims_have_one_plan_where_no_bouncer_is() {
    let store = TemporaryStore::new(|_| {});
    let factory = factory_at(TestPostgres::shared().url(&store.database));
    // It keeps the connection open.
    let _user = factory.store();
    for ticket in 1..=4 {
        // The odd ones are acknowledged by the next claim, the others are not.
        let acked = if ticket % 2 == 0 { vec![ticket - 1] } else { vec![] };
        let claimed = push_and_claim(&factory, ticket, &acked).unwrap();
        let expected = (ticket, ticket.to_string().into_bytes());
        assert_eq!([(claimed[0].ticket, claimed[0].payload.clone())], [expected]);
    }
    let plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements";
    let rows = factory.server.run(Mode::Single, |call| call.rows(plans, &[])).unwrap();
    let rows: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(4, 0)]);
    assert_eq!(factory.store().stats().unwrap().in_flight, 2);
}

#[test]
fn claims_go_on_where_a_bouncer_was_taken_for_the_server() {
    let server = TestPostgres::shared();
    let database = server.database();
    let bouncer = TestPgBouncer::start(server);
    let factory = factory_at(bouncer.url(&database));
    let _user = factory.store();
    // The bouncer may not be there yet, and not have noticed that a session is gone.
    let claim = |ticket: u64, acked: &[u64]| {
        let began = Instant::now();
        loop {
            match push_and_claim(&factory, ticket, acked) {
                Ok(claimed) => break claimed.len(),
                Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(claim(1, &[]), 1);
    let is_direct = || factory.server.run(Mode::Single, |call| Ok(call.conn.is_direct)).unwrap();
    assert!(is_direct());
    // Behind the bouncer is another session now.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname=current_database() AND pid<>pg_backend_pid()";
    server.psql(&database, end).unwrap();
    assert_eq!(claim(2, &[1]), 1);
    factory.server.note_told("q");
    assert!(!is_direct(), "it would fail again");
    server.drop_database(&database);
}

/// What a later release adds.
const LATER: &str = "DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT oid::regclass FROM pg_class WHERE relnamespace='chaton'::regnamespace AND relkind='r' LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN later int NOT NULL DEFAULT 1', name); END LOOP; END $$";

/// As a process of a later release does when it connects first.
fn bring_up_to_date(store: &TemporaryStore) -> Result<i64> {
    let options = StoreOptions::for_tests(TestPostgres::shared().url(&store.database));
    let address = PostgresAddress::read(&options)?;
    Server::new(address, Arc::new(options)).migrate(&[schema::STEPS, &[LATER]].concat())
}

#[test]
fn a_dump_keeps_the_tables_as_they_are_and_jobs_go_on() {
    let store = TemporaryStore::new(|_| {});
    let mut old = store.store();
    let job = NewJob { queue: "q", payload: b"{}", at: None, lock: None, bid: None };
    old.push(&[job]).unwrap();
    let server = TestPostgres::shared();
    let dump = "BEGIN; SELECT count(*) FROM chaton.jobs; SELECT pg_advisory_lock(8), pg_sleep(601)";
    let mut dump = server.session(&store.database, dump);
    let began = Instant::now();
    let holds = "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objid=8 AND granted";
    while server.psql(&store.database, holds).as_deref() != Some("1") {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not read");
    }
    std::thread::scope(|scope| {
        let later = scope.spawn(|| bring_up_to_date(&store));
        let mut longest = Duration::ZERO;
        while !later.is_finished() {
            let began = Instant::now();
            old.push(&[job]).unwrap();
            longest = longest.max(began.elapsed());
        }
        let error = later.join().unwrap().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Busy);
        assert!(error.message.contains("(psql)"), "{error}");
        println!("longest push: {longest:?}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
    dump.kill().unwrap();
    dump.wait().unwrap();
    let terminate =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(601)%'
        AND pid<>pg_backend_pid() AND datname=current_database()";
    server.psql(&store.database, terminate);
    assert_eq!(bring_up_to_date(&store).unwrap(), schema::VERSION + 1);
    old.push(&[job]).unwrap();
}

#[test]
fn a_transaction_that_is_open_for_long_is_named() {
    let store = TemporaryStore::new(|_| {});
    let server = TestPostgres::shared();
    let options = StoreOptions::for_tests(server.url(&store.database));
    let address = PostgresAddress::read(&options).unwrap();
    let ask = Server::new(address, Arc::new(options));
    let look = || ask.run(Mode::Single, |call| advice::snapshot(call, 0.05)).unwrap();
    assert_eq!(look(), None);
    let mut other = server.session(
        &store.database,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(60)",
    );
    let began = Instant::now();
    let line = loop {
        if let Some(line) = look() {
            break line;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it is not named");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(
        line.contains("(psql)") && line.contains("idle_in_transaction_session_timeout"),
        "{line}"
    );
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn parameters_of_rails_are_left_out_of_an_address() {
    let read = |url: &str| PostgresAddress::read(&StoreOptions::for_tests(url));
    let address =
        read("postgres://me:secret@h/app?pool=5&sslmode=verify-full&prepared_statements=false")
            .unwrap();
    assert_eq!(address.config.get_dbname(), Some("app"));
    assert_eq!(address.config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
    assert!(!address.shown.contains("secret"));
    for wrong in ["postgres://h", "postgres://h/app?nonsense=1", "postgres://h:x/app"] {
        let error = read(wrong).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    }
}

/// A transaction of the application has done the job; its process does not know that.
#[test]
fn a_job_that_its_transaction_has_ended_is_over_whatever_its_process_says() {
    let outcomes = [
        Outcome::Retry { at: 0.0, payload: b"{}".to_vec() },
        Outcome::Dead { at: 0.0, payload: None },
        Outcome::reschedule(0.0),
        Outcome::requeue(),
        Outcome::Discard,
        Outcome::Ack,
    ];
    let store = TemporaryStore::new(|_| {});
    let (mut jobs, server) = (store.store(), TestPostgres::shared());
    for (ticket, outcome) in outcomes.into_iter().enumerate() {
        let (ticket, bid) = (ticket as u64 + 1, format!("b{ticket}"));
        let batch = NewBatch {
            bid: &bid,
            parent: None,
            owner: "",
            description: "",
            callbacks: &[],
            ttl: Duration::from_secs(60),
            now_s: 0.0,
        };
        jobs.batch_open(&batch).unwrap();
        let payload = format!(
            r#"{{"class":"A","args":[],"jid":"j","queue":"q","bid":"{bid}","chaton":{{"lock":"key"}}}}"#
        );
        let lock = NewLock { key: "key", jid: "j", ttl: Duration::from_secs(60) };
        let job = NewJob {
            queue: "q",
            payload: payload.as_bytes(),
            at: None,
            lock: Some(lock),
            bid: Some(&bid),
        };
        assert_eq!(jobs.push(&[job]).unwrap(), [PushResult::Stored], "{outcome:?}");
        jobs.batch_close(&bid).unwrap();
        let queues: [Arc<str>; 1] = ["q".into()];
        let request = ClaimRequest { queues: &queues, count: 1, first_ticket: ticket };
        assert_eq!(jobs.claim("me", &request).unwrap().jobs.len(), 1);
        let own = jobs.own_transactions().unwrap();
        assert_eq!(own.has_ended("me", ticket).unwrap(), Some(false));
        let sql = own.end("me", ticket);
        assert_eq!(server.psql(&store.database, &sql).unwrap(), "1");
        assert_eq!(own.has_ended("me", ticket).unwrap(), Some(true));
        assert_eq!(own.has_ended("me", ticket + 1).unwrap(), None);
        let doc = Document::parse(payload.as_bytes().into()).unwrap();
        let effects = SideEffects::of(&doc, outcome.batch_event(), None);
        let ack = Ack { ticket, queue: "q".into(), outcome: outcome.clone(), effects };
        assert_eq!(jobs.ack("me", &[ack]).unwrap(), 0, "{outcome:?} is not refused");
        let stats = jobs.stats().unwrap();
        let left = stats.enqueued + stats.in_flight + stats.scheduled + stats.retries + stats.dead;
        assert_eq!(left, 0, "{outcome:?}");
        let pending = jobs.batch(&bid).unwrap().map_or(0, |batch| batch.pending);
        assert_eq!(pending, 0, "{outcome:?}");
    }
}
