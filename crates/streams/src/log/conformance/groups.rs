//! One member of a group.

use std::time::Instant;

use super::bench::*;
use crate::log::Position;
use crate::settings::Start;

/// Of all partitions, in the order of each.
pub fn one_member_reads_all(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 3);
    for number in 0..3 {
        fill(&*log, &topic, number, number as usize * 100..number as usize * 100 + 100);
    }
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&topic]));
    party.read(300);
    assert_eq!(party.numbers(), (0..300).collect::<Vec<_>>());
    for number in 0..3 {
        let own = party.values.iter().filter(|(partition, _, _)| partition.number == number);
        assert!(own.map(|(_, offset, _)| *offset).is_sorted());
    }
    assert!(party.has.iter().all(|assigned| assigned.committed.is_none()));
}

/// By its commits, waited for or not.
pub fn a_group_goes_on_where_it_was(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    let group = bench.group(&name("group"), &[&topic]);
    fill(&*log, &topic, 0, 0..20);
    for (start, wait) in [(0, true), (5, false), (10, true)] {
        let mut party = Party::join(&*log, &group);
        party.read(20 - start);
        assert_eq!(party.numbers()[0], start);
        let (_, offset, _) = party.values[4];
        party.member.commit(&[commit(&topic, 0, offset + 1, "")], wait).unwrap();
        party.member.leave(PATIENCE);
        assert_eq!(party.troubles, []);
    }
    let mut party = Party::join(&*log, &group);
    party.has(1);
    assert_eq!(party.has[0].committed, Some(15));
}

/// With the commit; the longest there is.
pub fn metadata_comes_back(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 2);
    let group = bench.group(&name("group"), &[&topic]);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..6));
    let long = "x".repeat(4096);
    let mut party = Party::join(&*log, &group);
    party.has(2);
    let commits = [commit(&topic, 0, 3, "one"), commit(&topic, 1, 4, &long)];
    party.member.commit(&commits, true).unwrap();
    party.member.commit(&[commit(&topic, 0, 5, "two")], true).unwrap();
    party.member.leave(PATIENCE);
    let mut party = Party::join(&*log, &group);
    party.has(2);
    party.has.sort_by_key(|assigned| assigned.partition.number);
    let noted: Vec<_> =
        party.has.iter().map(|one| (one.committed, one.metadata.as_str())).collect();
    assert_eq!(noted, [(Some(5), "two"), (Some(4), long.as_str())]);
}

/// Then it reads only what comes.
pub fn a_group_may_begin_at_the_end(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut group = bench.group(&name("group"), &[&topic]);
    group.start = Start::Latest;
    let mut party = Party::join(&*log, &group);
    party.has(1);
    // The place is settled by the first look at the partition.
    for _ in 0..3 {
        party.fetch();
        party.step(MOMENT);
    }
    fill(&*log, &topic, 0, 10..12);
    party.read(2);
    assert_eq!(party.numbers(), [10, 11]);
}

/// Each reads all and commits for itself.
pub fn groups_do_not_meet(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let names = [name("group"), name("group")];
    for group in &names {
        let mut party = Party::join(&*log, &bench.group(group, &[&topic]));
        party.read(10);
        assert_eq!(party.has[0].committed, None);
        party.member.commit(&[commit(&topic, 0, 10, "")], true).unwrap();
    }
}

/// From another thread; one that rang before counts.
pub fn a_bell_ends_a_wait(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&topic]));
    party.has(1);
    let began = Instant::now();
    party.bell.notify();
    party.member.wait(PATIENCE);
    assert!(began.elapsed() < PATIENCE);
}

/// Of another producer, soon.
pub fn a_record_ends_a_wait(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 2);
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&topic]));
    party.has(2);
    party.fetch();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&*log, &topic, 1, 0..1));
        while party.fetch() == 0 {
            party.step(PATIENCE);
        }
    });
    assert!(began.elapsed() < PATIENCE);
}

/// Back and forth.
pub fn reading_goes_on_elsewhere(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&topic]));
    party.read(10);
    for (to, first) in [(Position::Offset(4), 4), (Position::Earliest, 0), (Position::Offset(9), 9)]
    {
        party.values.clear();
        party.member.seek(&partition(&topic, 0), to).unwrap();
        party.read(10 - first);
        assert_eq!(party.numbers(), (first..10).collect::<Vec<_>>());
    }
    party.values.clear();
    party.member.seek(&partition(&topic, 0), Position::Latest).unwrap();
    fill(&*log, &topic, 0, 10..11);
    party.read(1);
    assert_eq!(party.numbers(), [10]);
}

/// To who asked for it, each time it is come to.
pub fn the_end_is_told(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..3);
    let mut group = bench.group(&name("group"), &[&topic]);
    group.eof = true;
    let mut party = Party::join(&*log, &group);
    for round in 1..3 {
        until("the end", || {
            party.fetch();
            party.step(MOMENT);
            party.ends.len() >= round
        });
        assert_eq!(party.values.len(), 2 + round);
        assert!(party.ends.iter().all(|end| *end == partition(&topic, 0)));
        fill(&*log, &topic, 0, 0..1);
    }
}

/// Once something was read.
pub fn the_end_offset_is_known(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&topic]));
    party.read(10);
    until("the end offset", || {
        party.step(MOMENT);
        party.member.end_offset(&partition(&topic, 0)) == Some(10)
    });
}

/// By one member.
pub fn several_topics_are_read(bench: &dyn Bench) {
    let log = log(bench);
    let (one, two) = (topic(&*log, 2), topic(&*log, 1));
    fill(&*log, &one, 1, 0..5);
    fill(&*log, &two, 0, 5..9);
    let mut party = Party::join(&*log, &bench.group(&name("group"), &[&one, &two]));
    party.read(9);
    assert_eq!(party.has.len(), 3);
    assert_eq!(party.numbers(), (0..9).collect::<Vec<_>>());
}
