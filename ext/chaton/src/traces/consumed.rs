//! Spans of jobs and batches, with the attributes of the semantic conventions for messaging.

use chaton_jobs::engine::Job;
use chaton_streams::batch::{Batch, BatchKind};
use chaton_traces::span_context::SpanContext;
use chaton_traces::tracing::Tracing;
use chaton_traces::work_span::{set_current, SpanKind, WorkSpan};

use super::tracing;

fn begin(
    tracing: &Tracing,
    parent: Option<&SpanContext>,
    system: &str,
    destination: &str,
) -> WorkSpan {
    let mut span = tracing.begin(SpanKind::Consumer, parent);
    if span.is_recorded() {
        span.name(format!("process {destination}"));
        span.text("messaging.system", system);
        span.text("messaging.operation.name", "process");
        span.text("messaging.operation.type", "process");
        span.text("messaging.destination.name", destination);
    }
    span
}

/// The calling thread is about to run a job.
pub fn job_begins(job: &Job) {
    let Some(tracing) = tracing() else { return };
    let document = job.document();
    let parent = document.traceparent().and_then(|text| {
        SpanContext::parse(text.as_bytes(), document.tracestate().map(str::as_bytes))
    });
    if job.is_due() {
        // It is only moved to its queue; client middleware sees the trace.
        set_current(parent.map(WorkSpan::unrecorded));
        return;
    }
    let mut span = begin(tracing, parent.as_ref(), "chaton", job.queue());
    if span.is_recorded() {
        span.text("messaging.message.id", document.jid());
        span.text("chaton.job.class", document.display_class());
        if let Some(at_s) = document.enqueued_at_s() {
            let waited_s = chaton_core::clock::wall_s() - at_s;
            span.number("chaton.queue_time", waited_s.max(0.0));
        }
    }
    set_current(Some(span));
}

/// The calling thread is about to run a batch. Its span belongs to the trace of the first record that is
/// recorded there, and is linked to the others.
pub fn batch_begins(batch: &Batch, system: &str, group: &str) {
    let Some(tracing) = tracing() else { return };
    if batch.kind() != BatchKind::Records {
        set_current(None);
        return;
    }
    let picks = batch.picks().iter();
    let contexts = picks.filter_map(|pick| context(batch, *pick as usize));
    let (mut parent, mut others): (Option<SpanContext>, Vec<SpanContext>) = (None, Vec::new());
    for context in contexts {
        match &parent {
            Some(parent) if parent.sampled => {
                // Records that were written together have the same one.
                let known = *parent == context || others.last() == Some(&context);
                if context.sampled && !known && others.len() < LINKS_MAX {
                    others.push(context);
                }
            }
            Some(_) if !context.sampled => {}
            _ => parent = Some(context),
        }
    }
    let topic = &batch.partition().topic;
    let mut span = begin(tracing, parent.as_ref(), system, topic);
    if span.is_recorded() {
        span.text("messaging.consumer.group.name", group);
        span.text("messaging.destination.partition.id", batch.partition().number.to_string());
        span.integer("messaging.batch.message_count", batch.len() as i64);
        if let Some(first) = batch.picks().first() {
            let offset = batch.chunk().record(*first as usize).offset();
            span.integer("messaging.kafka.offset", offset);
        }
        others.iter().for_each(|context| span.link(context));
    }
    set_current(Some(span));
}

/// Links to other traces that a batch has, at most.
const LINKS_MAX: usize = 128;

fn context(batch: &Batch, index: usize) -> Option<SpanContext> {
    let record = batch.chunk().record(index);
    let value = |name: &[u8]| record.headers().find(|(key, _)| *key == name)?.1;
    SpanContext::parse(value(b"traceparent")?, value(b"tracestate"))
}
