//! The rows of a report, summed by line of code and by class.

use std::collections::HashMap;

use super::super::{Report, SiteTotals};
use super::{short, SampleType};

/// Objects of one class allocated at one line of code.
pub(super) struct TableLine {
    /// `/app/foo.rb:12`, or the innermost frame's name if no frame has a file.
    pub(super) place: String,
    /// The innermost frame's name, often a method written in C.
    pub(super) label: String,
    pub(super) class: String,
    pub(super) tally: SiteTotals,
}

/// Lines of code, the heaviest first. The line is that of the innermost frame with a file.
pub(super) fn lines(report: &Report, by: SampleType, bytes: bool) -> Vec<TableLine> {
    let mut sums: HashMap<(String, &str, &str), SiteTotals> = HashMap::new();
    for row in &report.rows {
        let mut label = "(no frame)";
        let mut place = None;
        for (depth, (frame, line)) in report.stack(row.stack).enumerate() {
            if depth == 0 {
                label = &frame.label;
            }
            if !frame.path.is_empty() {
                place = Some(format!("{}:{line}", short(&frame.path)));
                break;
            }
        }
        let key = (place.unwrap_or_else(|| label.into()), label, report.class(row.class));
        *sums.entry(key).or_default() += &row.tally;
    }
    let line = |((place, label, class), tally): ((String, &str, &str), SiteTotals)| TableLine {
        place,
        label: label.into(),
        class: class.into(),
        tally,
    };
    let lines = sums.into_iter().map(line).collect();
    ordered(lines, |line: &TableLine| (by.of(&line.tally, bytes), line.place.clone()))
}

/// Classes, the heaviest first.
pub(super) fn classes(report: &Report, by: SampleType, bytes: bool) -> Vec<(String, SiteTotals)> {
    let mut sums: HashMap<&str, SiteTotals> = HashMap::new();
    for row in &report.rows {
        *sums.entry(report.class(row.class)).or_default() += &row.tally;
    }
    let classes = sums.into_iter().map(|(class, tally)| (class.to_owned(), tally)).collect();
    ordered(classes, |(class, tally): &(String, SiteTotals)| (by.of(tally, bytes), class.clone()))
}

fn ordered<T>(list: Vec<T>, key: impl Fn(&T) -> (f64, String)) -> Vec<T> {
    let mut keyed: Vec<((f64, String), T)> = list.into_iter().map(|one| (key(&one), one)).collect();
    keyed.sort_by(|((a, name), _), ((b, other), _)| b.total_cmp(a).then_with(|| name.cmp(other)));
    keyed.into_iter().map(|(_, one)| one).collect()
}

/// A line about each source of the report.
pub(super) fn sources(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for source in &report.sources {
        let about = &source.about;
        let who = match about.worker {
            Some(worker) => format!("worker {worker}, pid {}", about.pid),
            None => format!("pid {}", about.pid),
        };
        let mut line = format!(
            "{who}, Ruby {}: {:.1} s, 1 of {} objects in {:.1} % of the time; {} samples; \
             collections: {} ({} full)",
            about.ruby,
            about.seconds,
            about.every,
            100.0 * about.duty,
            source.samples,
            source.minor + source.major,
            source.major
        );
        if source.thinned > 0 {
            line += &format!("; thinned out {} times", source.thinned);
        }
        if source.other > 0 {
            line +=
                &format!("; {} samples without room for all of their stack or class", source.other);
        }
        if source.truncated > 0 {
            line += &format!("; {} samples of deeper stacks", source.truncated);
        }
        if let Some(note) = &about.note {
            line += &format!("; {note}");
        }
        lines.push(line);
    }
    lines
}
