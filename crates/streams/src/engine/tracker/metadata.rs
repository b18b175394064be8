//! The records done beyond the head, as metadata of a commit.
//!
//! The text lists lengths from the head on, of offsets that are not done and offsets that are in
//! turn, in digits of 5 bits. Metadata that another program wrote is ignored; at worst, records are
//! handed out again.

use std::collections::VecDeque;

use super::OffsetRange;
use crate::commit_notes::NOTES_BYTES_MAX;

/// Kafka's limit, without the notes of [`commit_notes`](crate::commit_notes).
const BYTES_MAX: usize = 4_096 - NOTES_BYTES_MAX;
/// Past this nothing is fetched, because records in flight may still finish in small pieces.
const BYTES_FETCHING_MAX: usize = 3_072;
/// The writer, and the version of the format.
const PREFIX: &str = "chaton:1:";
/// Begins the first and the last offset of lost records; `chaton streams lag` reads it.
const STOPPED: &str = ":stopped:";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The lengths of ranges that are not done, each with the length of the done range behind it.
fn lengths(
    undone: &VecDeque<OffsetRange>,
    position: Option<i64>,
) -> impl Iterator<Item = (u64, u64)> + '_ {
    let after = undone.iter().skip(1).map(|range| range.0).chain(position);
    let pairs = undone.iter().zip(after);
    pairs.map(|(range, next)| ((range.1 - range.0) as u64, (next - range.1).max(0) as u64))
}

/// Whether more may be fetched.
pub(in super::super) fn fits(undone: &VecDeque<OffsetRange>, position: Option<i64>) -> bool {
    if undone.len() <= 2 {
        return true;
    }
    let bytes: usize = lengths(undone, position).map(|(a, b)| digits(a) + digits(b)).sum();
    PREFIX.len() + bytes <= BYTES_FETCHING_MAX
}

/// The text; empty when nothing is done beyond the head. The last ranges are left out when they do
/// not fit: their records are handed out again.
pub(in super::super) fn encode(undone: &VecDeque<OffsetRange>, position: Option<i64>) -> String {
    let mut text = String::new();
    for (not_done, done) in lengths(undone, position).filter(|(_, done)| *done > 0) {
        if text.is_empty() {
            text.push_str(PREFIX);
        }
        if text.len() + digits(not_done) + digits(done) > BYTES_MAX {
            break;
        }
        push(&mut text, not_done);
        push(&mut text, done);
    }
    text
}

/// Says beside the ranges that the partition has stopped at these lost records, so that everyone who
/// reads the group's offsets sees it.
pub(in super::super) fn mark_stopped(text: &mut String, (from, until): OffsetRange) {
    let mark = format!("{STOPPED}{from}-{}", until - 1);
    if text.is_empty() || text.len() + mark.len() > BYTES_MAX {
        PREFIX.clone_into(text);
    }
    text.push_str(&mark);
}

/// Reads the metadata of a commit at `head`: the ranges that are done, rising. Empty for metadata
/// of another program.
pub(in super::super) fn decode(head: i64, text: &str) -> VecDeque<OffsetRange> {
    let ranges = text.strip_prefix(PREFIX).and_then(|rest| rest.split(STOPPED).next());
    let numbers = ranges.and_then(numbers).unwrap_or_default();
    let mut done = VecDeque::with_capacity(numbers.len() / 2);
    let mut at = head;
    for pair in numbers.chunks(2) {
        let [not_done, length] = pair else { return VecDeque::new() };
        let range = at.checked_add_unsigned(*not_done);
        let range = range.and_then(|start| Some((start, start.checked_add_unsigned(*length)?)));
        let Some(range) = range.filter(|_| *not_done > 0 && *length > 0) else {
            return VecDeque::new();
        };
        done.push_back(range);
        at = range.1;
    }
    done
}

fn digits(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(5) as usize
}

fn push(text: &mut String, mut number: u64) {
    loop {
        let low = (number & 31) as usize;
        number >>= 5;
        let more = if number > 0 { 32 } else { 0 };
        text.push(DIGITS[low | more] as char);
        if number == 0 {
            return;
        }
    }
}

/// `None` for text that is not a list of numbers.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0u64, 0u32);
    for byte in text.bytes() {
        let digit = DIGITS.iter().position(|own| *own == byte)? as u64;
        if shift > 55 {
            return None;
        }
        number |= (digit & 31) << shift;
        shift += 5;
        if digit & 32 == 0 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(numbers)
}
