//! One member of a group.

use std::time::Instant;

use super::fixture::*;
use crate::log::Position;
use crate::settings::{GroupSettings, Start};

/// One member reads all.
pub fn one_member_reads_all(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 3);
    for number in 0..3 {
        fill(&*log, &topic, number, number as usize * 100..number as usize * 100 + 100);
    }
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&topic]));
    member.read(300);
    assert_eq!(member.numbers(), (0..300).collect::<Vec<_>>());
    for number in 0..3 {
        let own = member.values.iter().filter(|(partition, _, _)| partition.number == number);
        assert!(own.map(|(_, offset, _)| *offset).is_sorted());
    }
    assert!(member.has.iter().all(|assigned| assigned.committed.is_none()));
}

/// A group continues at its commits.
pub fn a_group_continues_at_its_commits(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let group = fixture.group(&name("group"), &[&topic]);
    fill(&*log, &topic, 0, 0..20);
    for (start, wait) in [(0, true), (5, false), (10, true)] {
        let mut member = TestMember::join(&*log, &group);
        member.read(20 - start);
        assert_eq!(member.numbers()[0], start);
        let (_, offset, _) = member.values[4];
        member.member.commit(&[commit(&topic, 0, offset + 1, "")], wait).unwrap();
        member.member.leave(PATIENCE);
        assert_eq!(member.errors, []);
    }
    let mut member = TestMember::join(&*log, &group);
    member.has(1);
    assert_eq!(member.has[0].committed, Some(15));
}

/// Metadata is kept with the commit.
pub fn metadata_is_kept_with_the_commit(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let group = fixture.group(&name("group"), &[&topic]);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..6));
    let long = "x".repeat(4096);
    let mut member = TestMember::join(&*log, &group);
    member.has(2);
    let commits = [commit(&topic, 0, 3, "one"), commit(&topic, 1, 4, &long)];
    member.member.commit(&commits, true).unwrap();
    member.member.commit(&[commit(&topic, 0, 5, "two")], true).unwrap();
    member.member.leave(PATIENCE);
    let mut member = TestMember::join(&*log, &group);
    member.has(2);
    member.has.sort_by_key(|assigned| assigned.partition.number);
    let noted: Vec<_> =
        member.has.iter().map(|one| (one.committed, one.metadata.as_str())).collect();
    assert_eq!(noted, [(Some(5), "two"), (Some(4), long.as_str())]);
}

/// A group can begin at the end.
pub fn a_group_can_begin_at_the_end(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut group = fixture.group(&name("group"), &[&topic]);
    group.start = Start::Latest;
    let mut member = TestMember::join(&*log, &group);
    member.has(1);
    // The place is settled by the first look at the partition.
    for _ in 0..3 {
        member.fetch();
        member.step(MOMENT);
    }
    fill(&*log, &topic, 0, 10..12);
    member.read(2);
    assert_eq!(member.numbers(), [10, 11]);
}

/// A group that begins at the end goes on from there, and reads partitions that are added later whole.
pub fn a_group_that_began_at_the_end_goes_on_from_there(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    fill(&*log, &topic, 0, 0..3);
    let mut group = fixture.group(&name("group"), &[&topic]);
    group.start = Start::Latest;
    let begins = |group: &GroupSettings, count: usize| {
        let mut member = TestMember::join(&*log, group);
        member.has(count);
        member.has.sort_by_key(|assigned| assigned.partition.number);
        let begin =
            member.has.iter().map(|one| (one.is_first, one.committed, one.metadata.clone()));
        let begin: Vec<_> = begin.collect();
        (member, begin)
    };
    let (mut member, begin) = begins(&group, 2);
    let first = |offset| (true, Some(offset), ";2".to_owned());
    assert_eq!(begin, [first(3), first(0)]);
    let commits = [commit(&topic, 0, 3, ";2"), commit(&topic, 1, 0, ";2")];
    member.member.commit(&commits, true).unwrap();
    member.member.leave(PATIENCE);
    // Written while the group is away.
    fill(&*log, &topic, 0, 3..5);
    fill(&*log, &topic, 1, 5..6);
    let mut admin = log.admin().unwrap();
    admin.grow(&topic, 3).unwrap();
    until("the topic has grown", || settled(&mut *admin, &topic, 3));
    fill(&*log, &topic, 2, 6..8);
    let (mut member, begin) = begins(&group, 3);
    assert_eq!(begin[..2], [(false, Some(3), ";2".into()), (false, Some(0), ";2".into())]);
    assert_eq!(begin[2], first(0));
    member.read(5);
    assert_eq!(member.numbers(), (3..8).collect::<Vec<_>>());
    // A group that begins now knows three partitions.
    group.name = name("later");
    let (_member, begin) = begins(&group, 3);
    assert_eq!(begin[2], (true, Some(2), ";3".into()));
}

/// Groups are independent.
pub fn groups_are_independent(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let names = [name("group"), name("group")];
    for group in &names {
        let mut member = TestMember::join(&*log, &fixture.group(group, &[&topic]));
        member.read(10);
        assert_eq!(member.has[0].committed, None);
        member.member.commit(&[commit(&topic, 0, 10, "")], true).unwrap();
    }
}

/// A notifier ends a wait.
pub fn a_notifier_ends_a_wait(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&topic]));
    member.has(1);
    let began = Instant::now();
    member.notifier.notify();
    member.member.wait(PATIENCE);
    assert!(began.elapsed() < PATIENCE);
}

/// A record ends a wait.
pub fn a_record_ends_a_wait(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&topic]));
    member.has(2);
    member.fetch();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&*log, &topic, 1, 0..1));
        while member.fetch() == 0 {
            member.step(PATIENCE);
        }
    });
    assert!(began.elapsed() < PATIENCE);
}

/// A seek moves the position.
pub fn a_seek_moves_the_position(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&topic]));
    member.read(10);
    for (to, first) in [(Position::Offset(4), 4), (Position::Earliest, 0), (Position::Offset(9), 9)]
    {
        member.values.clear();
        member.member.seek(&partition(&topic, 0), to).unwrap();
        member.read(10 - first);
        assert_eq!(member.numbers(), (first..10).collect::<Vec<_>>());
    }
    member.values.clear();
    member.member.seek(&partition(&topic, 0), Position::Latest).unwrap();
    fill(&*log, &topic, 0, 10..11);
    member.read(1);
    assert_eq!(member.numbers(), [10]);
}

/// The end of a partition is reported.
pub fn the_end_of_a_partition_is_reported(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..3);
    let mut group = fixture.group(&name("group"), &[&topic]);
    group.eof = true;
    let mut member = TestMember::join(&*log, &group);
    for round in 1..3 {
        until("the end", || {
            member.fetch();
            member.step(MOMENT);
            member.ends.len() >= round
        });
        assert_eq!(member.values.len(), 2 + round);
        assert!(member.ends.iter().all(|end| *end == partition(&topic, 0)));
        fill(&*log, &topic, 0, 0..1);
    }
}

/// The end offset is known.
pub fn the_end_offset_is_known(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 1);
    fill(&*log, &topic, 0, 0..10);
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&topic]));
    member.read(10);
    until("the end offset", || {
        member.step(MOMENT);
        member.member.end_offset(&partition(&topic, 0)) == Some(10)
    });
}

/// Several topics are read.
pub fn several_topics_are_read(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let (one, two) = (topic(&*log, 2), topic(&*log, 1));
    fill(&*log, &one, 1, 0..5);
    fill(&*log, &two, 0, 5..9);
    let mut member = TestMember::join(&*log, &fixture.group(&name("group"), &[&one, &two]));
    member.read(9);
    assert_eq!(member.has.len(), 3);
    assert_eq!(member.numbers(), (0..9).collect::<Vec<_>>());
}
