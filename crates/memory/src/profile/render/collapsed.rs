//! One line per stack: `root;...;leaf;[Class] weight`.

use std::collections::BTreeMap;

use super::super::Report;
use super::{frame_text, SampleType};

/// The class stands at the end in brackets, so that no line ends in a number
/// that is part of a name.
pub(super) fn render(report: &Report, by: SampleType, bytes: bool) -> String {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for row in &report.rows {
        let weight = by.of(&row.tally, bytes);
        if weight > 0.0 {
            let mut stack = String::new();
            for (frame, line) in report.stack(row.stack).rev() {
                push(&mut stack, &frame_text(frame, line));
                stack.push(';');
            }
            push(&mut stack, &format!("[{}]", report.class(row.class)));
            *sums.entry(stack).or_default() += weight;
        }
    }
    let mut text = String::new();
    for (stack, weight) in sums {
        if weight.round() >= 1.0 {
            text.push_str(&format!("{stack} {}\n", weight.round() as u64));
        }
    }
    text
}

/// Appends a name; characters that would end the frame or the line are replaced, as is
/// `#` at the start of a line, which begins a comment.
pub(super) fn push(stack: &mut String, name: &str) {
    if stack.is_empty() && name.starts_with('#') {
        stack.push('_');
    }
    let name = if name.is_empty() { "(unnamed)" } else { name };
    stack.extend(name.chars().map(|letter| match letter {
        ';' => ':',
        letter if letter.is_control() => ' ',
        letter => letter,
    }));
}
