//! Assigns partitions to members: evenly, and with as few moves as possible.

use std::collections::{BTreeMap, BTreeSet};

use super::by_partition::ByPartition;
use crate::log::Partition;

/// The number of a member in its group.
pub(super) type MemberNumber = u32;

/// The topics that each member reads.
pub(super) type Subscriptions<'a> = BTreeMap<MemberNumber, &'a [String]>;

/// The member of each partition, computed alike in every process. Members that read the same topics
/// get equally many partitions, give or take one, and as few partitions as possible move.
pub(super) fn assign(
    members: &Subscriptions<'_>,
    partitions: &BTreeMap<String, i32>,
    before: &ByPartition<MemberNumber>,
) -> ByPartition<MemberNumber> {
    let mut readers = BTreeMap::<&str, Vec<MemberNumber>>::new();
    for (member, topics) in members {
        for topic in *topics {
            let readers = readers.entry(topic).or_default();
            if readers.last() != Some(member) {
                readers.push(*member);
            }
        }
    }
    let mut shares = Shares::new(members);
    let mut free = Vec::new();
    for (topic, count) in partitions {
        let Some(readers) = readers.get(topic.as_str()) else { continue };
        for number in 0..*count {
            match before.get(topic, number).filter(|one| readers.contains(one)) {
                Some(member) => shares.add(readers, *member, (topic, number)),
                None => free.push((readers, (topic.as_str(), number))),
            }
        }
    }
    for (readers, partition) in free {
        let member = shares.least_loaded(readers);
        shares.add(readers, member, partition);
    }
    while shares.make_best_move() {}
    shares.into_targets()
}

/// Topic and number.
type Named<'a> = (&'a str, i32);

/// Who has which partitions. Those that the same members read are alike, so that a move is found in few steps, however many
/// partitions there are.
struct Shares<'a> {
    loads: BTreeMap<MemberNumber, usize>,
    /// By the members that read their topics, and by the member that has them.
    all: BTreeMap<(&'a [MemberNumber], MemberNumber), BTreeSet<Named<'a>>>,
}

impl<'a> Shares<'a> {
    fn new(members: &Subscriptions<'_>) -> Self {
        Self { loads: members.keys().map(|member| (*member, 0)).collect(), all: BTreeMap::new() }
    }

    fn add(&mut self, readers: &'a [MemberNumber], member: MemberNumber, one: Named<'a>) {
        *self.loads.entry(member).or_default() += 1;
        self.all.entry((readers, member)).or_default().insert(one);
    }

    /// Readers are not empty.
    fn least_loaded(&self, readers: &[MemberNumber]) -> MemberNumber {
        readers.iter().copied().min_by_key(|one| self.loads[one]).unwrap_or_default()
    }

    /// Makes the move that evens out the loads most: from the most loaded member to the least loaded one that reads the
    /// topic. The last partitions move first. False if none is left.
    fn make_best_move(&mut self) -> bool {
        let moves = self.all.iter().filter_map(|(&(readers, from), partitions)| {
            let to = self.least_loaded(readers);
            let gain = self.loads[&from].saturating_sub(self.loads[&to]);
            Some(((gain, *partitions.last()?), readers, from, to)).filter(|_| gain > 1)
        });
        let Some(((_, one), readers, from, to)) = moves.max_by_key(|(rank, ..)| *rank) else {
            return false;
        };
        self.all.entry((readers, from)).and_modify(|partitions| {
            partitions.remove(&one);
        });
        *self.loads.entry(from).or_default() -= 1;
        self.add(readers, to, one);
        true
    }

    fn into_targets(self) -> ByPartition<MemberNumber> {
        let mut targets = ByPartition::default();
        for ((_, member), partitions) in self.all {
            for (topic, number) in partitions {
                targets.insert(&Partition { topic: topic.into(), number }, member);
            }
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign_all(
        topics: &[Vec<String>],
        partitions: &BTreeMap<String, i32>,
        before: &ByPartition<MemberNumber>,
    ) -> ByPartition<MemberNumber> {
        assign(&(0..).zip(topics.iter().map(Vec::as_slice)).collect(), partitions, before)
    }

    fn members(count: usize) -> Vec<Vec<String>> {
        vec![vec!["t".to_owned()]; count]
    }

    fn topic(count: i32) -> BTreeMap<String, i32> {
        [("t".to_owned(), count)].into()
    }

    fn loads(target: &ByPartition<MemberNumber>) -> Vec<usize> {
        let mut loads = BTreeMap::<MemberNumber, usize>::new();
        target.iter().for_each(|(_, id)| *loads.entry(*id).or_default() += 1);
        loads.into_values().collect()
    }

    #[test]
    fn partitions_are_assigned_evenly() {
        let none = ByPartition::default();
        assert_eq!(loads(&assign_all(&members(3), &topic(8), &none)), [3, 3, 2]);
        assert_eq!(loads(&assign_all(&members(3), &topic(2), &none)), [1, 1]);
        assert_eq!(assign_all(&members(0), &topic(2), &none), none);
    }

    #[test]
    fn few_partitions_move() {
        let mut before = assign_all(&members(1), &topic(12), &ByPartition::default());
        for count in [2, 3, 4, 3, 2, 1, 4] {
            let after = assign_all(&members(count), &topic(12), &before);
            let is_moved = |(one, id): &(Partition, &u32)| after.get("t", one.number) != Some(*id);
            let moved = before.iter().filter(is_moved).count();
            let spread = loads(&after);
            assert_eq!((spread.len(), spread.iter().sum::<usize>()), (count, 12));
            assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() <= 1);
            let old = loads(&before).len();
            // The share of a new member, or of the member that left.
            let bound = if count > old { 12 - 12 * old / count } else { 12 - 12 * count / old };
            assert!(moved <= bound, "{old} → {count}: {moved} of at most {bound}");
            before = after;
        }
    }

    #[test]
    fn a_member_gets_only_topics_it_reads() {
        let two = [vec!["t".to_owned(), "u".to_owned()], vec!["u".to_owned()]];
        let counts = [("t".to_owned(), 3), ("u".to_owned(), 3), ("v".to_owned(), 1)].into();
        let target = assign_all(&two, &counts, &ByPartition::default());
        assert!((0..3).all(|n| target.get("t", n) == Some(&0)));
        assert!((0..3).all(|n| target.get("u", n) == Some(&1)));
        assert_eq!(target.iter().count(), 6);
    }

    #[test]
    fn assigning_again_moves_nothing() {
        let first = assign_all(&members(5), &topic(17), &ByPartition::default());
        assert_eq!(assign_all(&members(5), &topic(17), &first), first);
    }

    /// Each move looked at each partition, and each look at each topic of a member: this took hours.
    #[test]
    fn half_of_many_topics_moves_to_a_second_member() {
        let names: Vec<String> = (0..10_000).map(|n| format!("t{n}")).collect();
        let counts = names.iter().map(|name| (name.clone(), 4)).collect();
        let mut members = vec![names];
        let alone = assign_all(&members, &counts, &ByPartition::default());
        members.push(members[0].clone());
        let both = assign_all(&members, &counts, &alone);
        assert_eq!(loads(&both), [20_000, 20_000]);
    }
}
