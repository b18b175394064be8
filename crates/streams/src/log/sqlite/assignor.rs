//! Assigns partitions to members: evenly, and with as few moves as possible.

use std::collections::BTreeMap;

use super::log_dir::partition_key;

/// The topics that each member reads.
pub(super) type Subscriptions = BTreeMap<String, Vec<String>>;

/// The member of each partition, computed alike in every process. Members that read the same topics
/// get equally many partitions, give or take one, and as few partitions as possible move.
pub(super) fn assign(
    members: &Subscriptions,
    partitions: &BTreeMap<String, i32>,
    before: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let reads = |id: &str, topic: &str| {
        members.get(id).is_some_and(|topics| topics.iter().any(|one| one == topic))
    };
    let mut loads: BTreeMap<&str, usize> = members.keys().map(|id| (id.as_str(), 0)).collect();
    let mut target: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    let mut free = Vec::new();
    for (topic, count) in partitions {
        for number in 0..*count {
            let key = partition_key(topic, number);
            let kept = before.get(&key).filter(|id| reads(id, topic));
            match kept.and_then(|id| loads.get_key_value(id.as_str()).map(|(id, _)| *id)) {
                Some(id) => {
                    *loads.entry(id).or_default() += 1;
                    target.insert(key, (topic, id));
                }
                None => free.push((key, topic)),
            }
        }
    }
    for (key, topic) in free {
        let least = loads.iter().filter(|(id, _)| reads(id, topic)).min_by_key(|(_, load)| **load);
        if let Some(id) = least.map(|(id, _)| *id) {
            *loads.entry(id).or_default() += 1;
            target.insert(key, (topic, id));
        }
    }
    while let Some((key, id)) = next_move(&target, &loads, reads) {
        if let Some((_, owner)) = target.get_mut(&key) {
            *loads.entry(owner).or_default() -= 1;
            *loads.entry(id).or_default() += 1;
            *owner = id;
        }
    }
    target.into_iter().map(|(key, (_, id))| (key, id.to_owned())).collect()
}

/// The move that evens out the loads most: from the most loaded member to the
/// least loaded one that reads the topic.
fn next_move<'a>(
    target: &BTreeMap<String, (&'a str, &'a str)>,
    loads: &BTreeMap<&'a str, usize>,
    reads: impl Fn(&str, &str) -> bool,
) -> Option<(String, &'a str)> {
    let mut best: Option<(usize, &String, &'a str)> = None;
    for (key, (topic, owner)) in target {
        let able = loads.iter().filter(|(id, _)| reads(id, topic));
        let Some((id, least)) = able.min_by_key(|(_, load)| **load) else { continue };
        let gain = loads[owner].saturating_sub(*least);
        // The last partitions move first.
        if gain > 1 && best.as_ref().is_none_or(|(most, _, _)| gain >= *most) {
            best = Some((gain, key, *id));
        }
    }
    best.map(|(_, key, id)| (key.clone(), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize) -> Subscriptions {
        (0..count).map(|n| (format!("m{n}"), vec!["t".to_owned()])).collect()
    }

    fn topic(count: i32) -> BTreeMap<String, i32> {
        [("t".to_owned(), count)].into()
    }

    fn loads(target: &BTreeMap<String, String>) -> Vec<usize> {
        let mut loads = BTreeMap::<&String, usize>::new();
        target.values().for_each(|id| *loads.entry(id).or_default() += 1);
        loads.into_values().collect()
    }

    #[test]
    fn partitions_are_assigned_evenly() {
        let none = BTreeMap::new();
        assert_eq!(loads(&assign(&members(3), &topic(8), &none)), [3, 3, 2]);
        assert_eq!(loads(&assign(&members(3), &topic(2), &none)), [1, 1]);
        assert!(assign(&members(0), &topic(2), &none).is_empty());
    }

    #[test]
    fn few_partitions_move() {
        let mut before = assign(&members(1), &topic(12), &BTreeMap::new());
        for count in [2, 3, 4, 3, 2, 1, 4] {
            let after = assign(&members(count), &topic(12), &before);
            let moved = before.iter().filter(|(key, id)| after[*key] != **id).count();
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
        let two: Subscriptions = [
            ("a".to_owned(), vec!["t".to_owned(), "u".to_owned()]),
            ("b".to_owned(), vec!["u".to_owned()]),
        ]
        .into();
        let counts = [("t".to_owned(), 3), ("u".to_owned(), 3), ("v".to_owned(), 1)].into();
        let target = assign(&two, &counts, &BTreeMap::new());
        assert!((0..3).all(|n| target[&partition_key("t", n)] == "a"));
        assert!((0..3).all(|n| target[&partition_key("u", n)] == "b"));
        assert_eq!(target.len(), 6);
    }

    #[test]
    fn assigning_again_moves_nothing() {
        let first = assign(&members(5), &topic(17), &BTreeMap::new());
        assert_eq!(assign(&members(5), &topic(17), &first), first);
    }
}
