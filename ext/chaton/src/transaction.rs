//! `Chaton.transaction`: what a job or a consumer has held back is written with its acknowledgement or its commit. This
//! is the only place that knows both engines.

use chaton_embedded::{Enlisted, Transaction};
use chaton_jobs::store::sqlite::push_in;
use chaton_jobs::store::NewJob;
use chaton_streams::record::OwnedRecord;
use magnus::typed_data::Obj;
use magnus::{function, Error, RArray, RModule};

use crate::gvl::{check_interrupts, without_gvl_to_the_end};
use crate::jobs::client::{traced, PushedJob, RbJobsClient};
use crate::jobs::job::RbJob;
use crate::streams::batch::RbBatch;
use crate::streams::client::RbStreamsClient;
use crate::streams::log_error;
use crate::streams::new_record::RubyRecord;

/// Jobs that are pushed in a transaction of the log.
struct EnlistedJobs<'a>(&'a [NewJob<'a>]);

impl Enlisted for EnlistedJobs<'_> {
    fn write(&self, tx: &Transaction<'_>) -> chaton_embedded::Result<()> {
        push_in(tx, self.0).map_err(|error| {
            chaton_embedded::Error::unavailable(format!("the jobs of a transaction: {error}"))
        })
    }
}

fn jobs_of(list: RArray) -> Result<Vec<PushedJob>, Error> {
    list.into_iter().map(PushedJob::from_array).collect()
}

fn records_of(list: RArray) -> Result<Vec<OwnedRecord>, Error> {
    list.into_iter().map(|row| Ok(RubyRecord::from_array(row)?.owned())).collect()
}

/// `commit_job(job, jobs, streams, pushes, rows)`: acknowledges the job, pushes jobs and writes records.
fn commit_job(
    job: Obj<RbJob>,
    jobs: Obj<RbJobsClient>,
    streams: Obj<RbStreamsClient>,
    pushes: RArray,
    rows: RArray,
) -> Result<(), Error> {
    let (pushes, records) = (jobs_of(pushes)?, records_of(rows)?);
    let log = streams.open()?;
    let enlisted = without_gvl_to_the_end(|| log.log.enlist(&records));
    let Some(enlisted) = enlisted else { return check_interrupts() };
    let enlisted = enlisted.map_err(|error| log_error::raised(&error))?;
    traced(pushes, |pushes| {
        job.commit(|owner, ack| {
            jobs.call(|store| store.commit(owner, ack, pushes, Some(&*enlisted)))
        })
    })
}

/// `commit_batch(batch, jobs, pushes, rows, through)`: commits the batch, pushes jobs and writes records.
fn commit_batch(
    batch: Obj<RbBatch>,
    jobs: Obj<RbJobsClient>,
    pushes: RArray,
    rows: RArray,
    through: Option<i64>,
) -> Result<(), Error> {
    let (pushes, records) = (jobs_of(pushes)?, records_of(rows)?);
    // The log's own process may not have used the store yet.
    jobs.call(|store| store.prepare())?;
    traced(pushes, |pushes| batch.transact_with(records, Some(&EnlistedJobs(pushes)), through))
}

/// Defines the functions.
///
/// # Errors
/// Those of Ruby.
pub fn define(native: RModule) -> Result<(), Error> {
    native.define_module_function("commit_job", function!(commit_job, 5))?;
    native.define_module_function("commit_batch", function!(commit_batch, 5))
}
