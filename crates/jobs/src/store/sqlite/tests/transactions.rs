//! Jobs that are acknowledged and pushed in one transaction with what another engine writes.

use chaton_embedded::{Enlisted, Error, Transaction};

use super::*;
use crate::outcome::{Ack, Outcome};
use crate::store::*;

/// The other engine: writes a row, or fails after that.
struct Other(bool);

impl Enlisted for Other {
    fn write(&self, tx: &Transaction<'_>) -> chaton_embedded::Result<()> {
        let written = tx.conn.execute("INSERT INTO counters VALUES('other', 1)", []);
        assert_eq!(written, Ok(1));
        match self.0 {
            true => Err(Error::refused("no topic")),
            false => Ok(()),
        }
    }
}

fn ack_of(job: &ClaimedJob) -> Ack {
    let (ticket, queue) = (job.ticket, job.queue.clone());
    Ack { ticket, queue, outcome: Outcome::Ack, effects: None }
}

fn claim(store: &mut dyn Store, queue: &str) -> Option<ClaimedJob> {
    let request = ClaimRequest { queues: &[queue.into()], count: 1, first_ticket: 1 };
    store.claim("o", &request).unwrap().jobs.pop()
}

#[test]
fn all_is_written_or_nothing() {
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    push(&mut *store, "first").unwrap();
    let next = NewJob { queue: "next", payload: b"{}", at: None, lock: None, bid: None };
    let ack = ack_of(&claim(&mut *store, "q").unwrap());
    let mut commit = |owner: &str, fails| {
        store.commit(owner, &ack, std::slice::from_ref(&next), Some(&Other(fails)))
    };
    let error = commit("o", true).unwrap_err();
    assert!(error.message.contains("no topic"), "{error}");
    let error = commit("another", false).unwrap_err();
    assert!(error.message.contains("reclaimed"), "{error}");
    commit("o", false).unwrap();
    let error = commit("o", false).unwrap_err();
    assert!(error.message.contains("reclaimed"), "ended already: {error}");
    let rows = "SELECT (SELECT count(*) FROM flights) || (SELECT count(*) FROM waiting)
                || (SELECT count(*) FROM counters WHERE name='other')";
    let settings = Settings { lock_timeout: Duration::from_secs(30), follows: false };
    let database = Database::shared(&place.path(), &schema::FORMAT, settings);
    assert_eq!(
        database.read(|conn| conn.query_row(rows, [], |row| row.get::<_, String>(0))).unwrap(),
        "011"
    );
    assert!(claim(&mut *store, "next").is_some());
}

#[test]
fn another_store_says_that_it_cannot() {
    let options = StoreOptions::for_tests("memory://transactions");
    let mut store = crate::store::memory::factory(&options).unwrap().store();
    let ack = Ack { ticket: 1, queue: "q".into(), outcome: Outcome::Ack, effects: None };
    for error in [store.commit("o", &ack, &[], None), store.prepare()] {
        assert!(error.unwrap_err().message.contains("no transactions"));
    }
}
