//! Notes at the end of a commit's metadata, which say more than how far a group has come.
//!
//! **Where a group with `start: :latest` begins** in a partition that it has not committed. A partition that
//! was there when the group began starts at its end, and that offset is committed at once, so that a
//! restart loses nothing that is written meanwhile. A partition that was added to the topic later starts
//! with its first record, because all of its records are newer than the group. To tell them apart, each
//! commit of such a group notes how many partitions the topic had when the group began (`;4`): members that
//! begin at the same time find different commits of each other.
//!
//! **Which transaction has committed**: each notes a number of its own (`~1f2e…`), so that a commit whose
//! answer was lost can be told from the one before, even at the same offset.

use crate::log::Position;

const BEGAN_WITH: char = ';';
const TRANSACTION: char = '~';

/// The length of the longest notes.
pub(crate) const NOTES_BYTES_MAX: usize = 11 + 17;

/// The position at which partition `number` begins, and the metadata of its first commit.
/// `partitions`: how many the topic has. `commits`: those of the group in this topic, with their metadata.
pub fn first_position<'a>(
    number: i32,
    partitions: i32,
    commits: impl Iterator<Item = (i32, &'a str)>,
) -> (Position, String) {
    let (mut noted, mut highest) = (None, None);
    for (number, metadata) in commits {
        noted = noted.or(split(metadata).1);
        highest = highest.max(Some(number));
    }
    // Commits without a note are those of a seek, or of a group that began at the oldest record.
    let began_with = noted.or(highest.map(|number| number + 1)).unwrap_or(partitions);
    let position = if number < began_with { Position::Latest } else { Position::Earliest };
    (position, with_beginning(String::new(), Some(began_with)))
}

/// The metadata without its notes, and how many partitions the topic had when the group began.
pub(crate) fn split(metadata: &str) -> (&str, Option<i32>) {
    let metadata = metadata.rsplit_once(TRANSACTION).map_or(metadata, |(rest, _)| rest);
    let Some((rest, number)) = metadata.rsplit_once(BEGAN_WITH) else { return (metadata, None) };
    number.parse().map_or((metadata, None), |number| (rest, Some(number)))
}

/// The metadata with how many partitions the topic had when the group began, if that is known.
pub(crate) fn with_beginning(mut metadata: String, partitions: Option<i32>) -> String {
    if let Some(partitions) = partitions {
        metadata.push(BEGAN_WITH);
        metadata.push_str(&partitions.to_string());
    }
    metadata
}

/// The metadata with the number of its transaction.
pub(crate) fn with_transaction(metadata: &str, number: u64) -> String {
    format!("{metadata}{TRANSACTION}{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition's number, how many there are, the commits; then the position and the metadata.
    type Case = (i32, i32, &'static [(i32, &'static str)], Position, &'static str);

    #[test]
    fn a_group_begins_at_the_end_of_what_was_there_and_at_the_beginning_of_what_came_later() {
        let (end, beginning) = (Position::Latest, Position::Earliest);
        let cases: &[Case] = &[
            // The first member of the group, and one that finds the commits of the first.
            (3, 4, &[], end, ";4"),
            (3, 4, &[(0, ";4"), (1, "chaton:1:BC;4~f")], end, ";4"),
            // The topic has grown.
            (4, 6, &[(0, ";4")], beginning, ";4"),
            (5, 6, &[(4, ";4~f"), (0, "")], beginning, ";4"),
            // Commits of a seek have no note.
            (1, 4, &[(0, ""), (3, "another program's; text")], end, ";4"),
            (4, 5, &[(0, "~f"), (3, "")], beginning, ";4"),
        ];
        for (number, partitions, commits, position, metadata) in cases {
            let found = first_position(*number, *partitions, commits.iter().copied());
            assert_eq!(found, (*position, (*metadata).to_owned()), "{number} {commits:?}");
        }
    }

    #[test]
    fn notes_come_off_again() {
        let noted =
            with_transaction(&with_beginning("chaton:1:BC".into(), Some(i32::MAX)), u64::MAX);
        assert_eq!(split(&noted), ("chaton:1:BC", Some(i32::MAX)));
        assert_eq!(noted.len(), "chaton:1:BC".len() + NOTES_BYTES_MAX);
    }
}
