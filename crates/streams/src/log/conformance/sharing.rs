//! Several members of a group.

use std::collections::BTreeSet;

use super::fixture::*;
use crate::log::Partition;

fn partitions(member: &TestMember) -> BTreeSet<Partition> {
    member.has.iter().map(|assigned| assigned.partition.clone()).collect()
}

/// Lets all members take part until the condition holds.
fn together(what: &str, members: &mut [TestMember], over: impl Fn(&[TestMember]) -> bool) {
    until(what, || {
        let reached = over(members);
        if !reached {
            members.iter_mut().for_each(|member| member.step(MOMENT / 10));
        }
        reached
    });
}

fn is_shared(members: &[TestMember], total: usize) -> bool {
    let all: BTreeSet<_> = members.iter().flat_map(partitions).collect();
    let sizes: Vec<_> = members.iter().map(|member| member.has.len()).collect();
    let even = sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1;
    all.len() == total && sizes.iter().sum::<usize>() == total && even
}

/// Two members share.
pub fn two_members_share(fixture: &dyn LogFixture) {
    let (one, two) = (log(fixture), log(fixture));
    let topic = topic(&*one, 4);
    let group = fixture.group(&name("group"), &[&topic]);
    let mut members = vec![TestMember::join(&*one, &group)];
    members[0].has(4);
    members.push(TestMember::join(&*two, &group));
    together("they share", &mut members, |all| is_shared(all, 4));
    for number in 0..4 {
        fill(&*one, &topic, number, number as usize * 10..number as usize * 10 + 10);
    }
    for member in &mut members {
        member.read(20);
        let mine = partitions(member);
        assert!(member.values.iter().all(|(partition, _, _)| mine.contains(partition)));
    }
}

/// The partitions of a leaving member are reassigned.
pub fn the_partitions_of_a_leaving_member_are_reassigned(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..8));
    let group = fixture.group(&name("group"), &[&topic]);
    let mut members = vec![TestMember::join(&*log, &group), TestMember::join(&*log, &group)];
    together("they share", &mut members, |all| is_shared(all, 2));
    let mut second = members.pop().unwrap();
    let number = second.has[0].partition.number;
    second.member.commit(&[commit(&topic, number, 7, "note")], true).unwrap();
    second.member.leave(PATIENCE);
    together("the first has both", &mut members, |all| is_shared(all, 2));
    let got = members[0].has.iter().find(|one| one.partition.number == number).unwrap();
    assert_eq!((got.committed, got.metadata.as_str()), (Some(7), "note"));
}

/// A partition moves after its release.
pub fn a_partition_moves_after_its_release(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..8));
    let group = fixture.group(&name("group"), &[&topic]);
    let mut members = vec![TestMember::join(&*log, &group)];
    members[0].has(2);
    members[0].keeps = true;
    members.push(TestMember::join(&*log, &group));
    together("one is revoked", &mut members, |all| all[0].revoked.len() == 1);
    let gone = members[0].revoked[0].clone();
    for _ in 0..5 {
        members.iter_mut().for_each(|member| member.step(MOMENT / 10));
        assert!(!partitions(&members[1]).contains(&gone), "read by two");
    }
    members[0].member.commit(&[commit(&topic, gone.number, 3, "")], true).unwrap();
    members[0].member.release(std::slice::from_ref(&gone));
    together("the second has it", &mut members, |all| partitions(&all[1]).contains(&gone));
    assert_eq!(members[1].has[0].committed, Some(3));
    assert_eq!(members[0].has.len(), 1);
}

/// Members come and go.
pub fn members_come_and_go(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 6);
    let group = fixture.group(&name("group"), &[&topic]);
    let mut members: Vec<TestMember> = Vec::new();
    for count in [1, 3, 2, 4, 1] {
        while members.len() < count {
            members.push(TestMember::join(&*log, &group));
        }
        while members.len() > count {
            members.remove(0).member.leave(PATIENCE);
        }
        together("all is shared", &mut members, |all| is_shared(all, 6));
    }
}
