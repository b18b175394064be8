//! Several members of a group.

use std::collections::BTreeSet;

use super::bench::*;
use crate::log::Partition;

fn partitions(party: &Party) -> BTreeSet<Partition> {
    party.has.iter().map(|assigned| assigned.partition.clone()).collect()
}

/// Lets all take part until the condition holds.
fn together(what: &str, parties: &mut [Party], over: impl Fn(&[Party]) -> bool) {
    until(what, || {
        let reached = over(parties);
        if !reached {
            parties.iter_mut().for_each(|party| party.step(MOMENT / 10));
        }
        reached
    });
}

fn is_shared(parties: &[Party], total: usize) -> bool {
    let all: BTreeSet<_> = parties.iter().flat_map(partitions).collect();
    let sizes: Vec<_> = parties.iter().map(|party| party.has.len()).collect();
    let even = sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1;
    all.len() == total && sizes.iter().sum::<usize>() == total && even
}

/// Each partition is one member's.
pub fn two_members_share(bench: &dyn Bench) {
    let (one, two) = (log(bench), log(bench));
    let topic = topic(&*one, 4);
    let group = bench.group(&name("group"), &[&topic]);
    let mut parties = vec![Party::join(&*one, &group)];
    parties[0].has(4);
    parties.push(Party::join(&*two, &group));
    together("they share", &mut parties, |all| is_shared(all, 4));
    for number in 0..4 {
        fill(&*one, &topic, number, number as usize * 10..number as usize * 10 + 10);
    }
    for party in &mut parties {
        party.read(20);
        let mine = partitions(party);
        assert!(party.values.iter().all(|(partition, _, _)| mine.contains(partition)));
    }
}

/// By the others, who go on where it had come to.
pub fn who_leaves_is_replaced(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 2);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..8));
    let group = bench.group(&name("group"), &[&topic]);
    let mut parties = vec![Party::join(&*log, &group), Party::join(&*log, &group)];
    together("they share", &mut parties, |all| is_shared(all, 2));
    let mut second = parties.pop().unwrap();
    let number = second.has[0].partition.number;
    second.member.commit(&[commit(&topic, number, 7, "note")], true).unwrap();
    second.member.leave(PATIENCE);
    together("the first has both", &mut parties, |all| is_shared(all, 2));
    let got = parties[0].has.iter().find(|one| one.partition.number == number).unwrap();
    assert_eq!((got.committed, got.metadata.as_str()), (Some(7), "note"));
}

/// Before another one gets it; what is committed until then counts.
pub fn a_partition_is_released_first(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 2);
    (0..2).for_each(|number| fill(&*log, &topic, number, 0..8));
    let group = bench.group(&name("group"), &[&topic]);
    let mut parties = vec![Party::join(&*log, &group)];
    parties[0].has(2);
    parties[0].keeps = true;
    parties.push(Party::join(&*log, &group));
    together("one is revoked", &mut parties, |all| all[0].revoked.len() == 1);
    let gone = parties[0].revoked[0].clone();
    for _ in 0..5 {
        parties.iter_mut().for_each(|party| party.step(MOMENT / 10));
        assert!(!partitions(&parties[1]).contains(&gone), "read by two");
    }
    parties[0].member.commit(&[commit(&topic, gone.number, 3, "")], true).unwrap();
    parties[0].member.release(std::slice::from_ref(&gone));
    together("the second has it", &mut parties, |all| partitions(&all[1]).contains(&gone));
    assert_eq!(parties[1].has[0].committed, Some(3));
    assert_eq!(parties[0].has.len(), 1);
}

/// And in the end all is shared evenly, nothing twice.
pub fn members_come_and_go(bench: &dyn Bench) {
    let log = log(bench);
    let topic = topic(&*log, 6);
    let group = bench.group(&name("group"), &[&topic]);
    let mut parties: Vec<Party> = Vec::new();
    for count in [1, 3, 2, 4, 1] {
        while parties.len() < count {
            parties.push(Party::join(&*log, &group));
        }
        while parties.len() > count {
            parties.remove(0).member.leave(PATIENCE);
        }
        together("all is shared", &mut parties, |all| is_shared(all, 6));
    }
}
