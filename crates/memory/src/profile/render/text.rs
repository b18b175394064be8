//! Tables for a terminal.

use super::super::{ObjectTotals, Report, SiteTotals};
use super::numbers::{bytes, clock, count, percent, time};
use super::{tables, RenderOptions};

/// Bound of the lines of the smaller tables.
const SMALL_MAX: usize = 10;

/// Below the tables of stacks and classes.
const LEGEND: &str = "\n\
    live, objects: what is not known to be dead; allocated, freed: while it was traced\n\
    alive: share of it that the collections found alive; young: share that died in its first collection\n\
    age: collections that the median live object has survived; longlife: what Ruby holds for long-lived (old)\n";

pub(super) fn render(report: &Report, view: &RenderOptions) -> String {
    let mut text = format!("{}\n", plain(&view.title));
    for source in tables::sources(report) {
        text += &format!("{}\n", plain(&source));
    }
    if report.rows.is_empty() {
        text += "Nothing was sampled.\n";
    } else {
        rows(&mut text, report, view);
        text += LEGEND;
    }
    collections(&mut text, report);
    gvl(&mut text, report);
    text
}

fn rows(text: &mut String, report: &Report, view: &RenderOptions) {
    *text += &format!("\n{}  by {}\n", head(), view.by.name());
    let lines = tables::lines(report, view.by, view.bytes);
    for line in lines.iter().take(view.lines_max) {
        let label = if line.label == line.place { "" } else { &line.label };
        let name = format!("{} {} {}", plain(&line.class), plain(&line.place), plain(label));
        *text += &format!("{}  {}\n", columns(&line.tally), name.trim_end());
    }
    if lines.len() > view.lines_max {
        *text += &format!("{:>74}  ({} lines more)\n", "", lines.len() - view.lines_max);
    }
    *text += &format!("{}  all\n\n{}  by class\n", columns(&report.total()), head());
    let small = view.lines_max.min(SMALL_MAX);
    for (class, tally) in tables::classes(report, view.by, view.bytes).iter().take(small) {
        *text += &format!("{}  {}\n", columns(tally), plain(class));
    }
}

fn head() -> String {
    format!(
        "{:>10} {:>10} {:>10} {:>10} {:>6} {:>6} {:>6} {:>9}",
        "live", "objects", "allocated", "freed", "alive", "young", "age", "longlife"
    )
}

fn columns(tally: &SiteTotals) -> String {
    format!(
        "{:>10} {:>10} {:>10} {:>10} {:>6} {:>6} {:>6} {:>9}",
        bytes(tally.live.bytes),
        count(tally.live.objects),
        bytes(tally.allocated.bytes),
        bytes(tally.freed.bytes),
        percent(tally.survival()),
        percent(tally.died_young()),
        tally.median_age().unwrap_or("–"),
        bytes(tally.old.bytes)
    )
}

fn collections(text: &mut String, report: &Report) {
    let skipped = report.collections.len().saturating_sub(SMALL_MAX);
    let last = &report.collections[skipped..];
    if last.is_empty() {
        return;
    }
    *text += &format!(
        "\n{:>8} {:>7} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10}  collections\n",
        "at (UTC)", "pid", "kind", "allocated", "freed", "surviving", "promoted", "longlife"
    );
    for one in last {
        let kind = format!("{:?}", one.kind).to_lowercase();
        let size = |amount: &ObjectTotals| bytes(amount.bytes);
        *text += &format!(
            "{:>8} {:>7} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            clock(one.unix_s),
            one.pid,
            kind,
            size(&one.allocated),
            size(&one.freed),
            size(&one.surviving),
            size(&one.promoted),
            size(&one.old)
        );
    }
}

fn gvl(text: &mut String, report: &Report) {
    let Some(waits) = &report.gvl else { return };
    *text += &format!(
        "\n{:>10} {:>10} {:>10} {:>10} {:>10}  global lock, by kind of unit\n",
        "units", "waiting", "holding", "total", "p99 wait <"
    );
    for unit in waits.units.iter().take(SMALL_MAX) {
        *text += &format!(
            "{:>10} {:>10} {:>10} {:>10} {:>10}  {}\n",
            count(unit.count as f64),
            time(unit.waiting_ns as f64),
            time(unit.holding_ns as f64),
            time(unit.total_ns as f64),
            time(unit.wait_bound_ns(0.01) as f64),
            plain(&unit.label)
        );
    }
}

/// The text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
