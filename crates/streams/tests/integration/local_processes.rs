//! The local log shared by real processes, some of which are killed: this binary starts itself
//! again, as the test `child` in the role that the environment names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_streams::log::conformance::fixture::*;
use chaton_streams::log::{ErrorKind, Position, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::record::{NewRecord, OwnedRecord};
use chaton_streams::settings::{GroupSettings, LogSettings};

const ROLE: &str = "CHATON_LOCAL_TEST_ROLE";
const FOLDER: &str = "CHATON_LOCAL_TEST_FOLDER";
const NAME: &str = "CHATON_LOCAL_TEST_NAME";

fn open(folder: &str) -> Arc<dyn RecordLog> {
    chaton_streams::log::open(&LogSettings::for_tests(&format!("log://{folder}"))).unwrap()
}

/// A process of ours and what it says.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, folder: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["local_processes::child", "--exact", "--nocapture"]).stdout(Stdio::piped());
        command.env(ROLE, role).env(FOLDER, folder).env(NAME, name);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Its next line; `None` when it has ended.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness prints lines, too.
            if let Some(text) = line.trim_end().strip_prefix("> ") {
                return Some(text.to_owned());
            }
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: our own child, which was not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Kills it; returns its lines that were not read yet.
    fn kill(mut self) -> Vec<String> {
        self.signal(libc::SIGKILL);
        let rest = std::iter::from_fn(|| self.line()).collect();
        self.child.wait().unwrap();
        rest
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to the test that has started this process.
fn say(what: &str) {
    println!("> {what}");
}

#[test]
fn child() {
    let var = |name| std::env::var(name).unwrap_or_default();
    let (folder, name) = (var(FOLDER), var(NAME));
    match var(ROLE).as_str() {
        "produce" => produce(&folder, &name),
        "member" => read_as_member(&folder),
        "consume" => consume(&folder, &name),
        "transact" => transact(&folder),
        _ => {}
    }
}

/// Produces for ever, many at once, and says what is durable.
fn produce(folder: &str, name: &str) {
    let log = open(folder);
    let producer = log.producer().unwrap();
    let mut flying = VecDeque::new();
    for number in 0.. {
        let text = format!("{name}:{number}");
        let receipt = Arc::new(Receipt::new(1));
        let to = NewRecord { partition: Some(number % 2), ..record("t", text.as_bytes()) };
        producer.send(&to, Some((&receipt, 0))).unwrap();
        flying.push_back((receipt, text));
        while flying.len() > 50 || flying.front().is_some_and(|(receipt, _)| receipt.is_done()) {
            let (receipt, text) = flying.pop_front().unwrap();
            assert!(receipt.wait(PATIENCE) && receipt.failed() == 0);
            say(&text);
        }
    }
}

/// Rounds of a test: few in bin/test, many in bin/soak.
fn rounds(few: u64, many: u64) -> u64 {
    if std::env::var_os("CHATON_SOAK").is_some() {
        many
    } else {
        few
    }
}

/// The values in the log, each there once and those of a producer in their order.
fn written_once_and_in_order(log: &dyn RecordLog) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let admin = log.admin().unwrap().topic("t").unwrap().unwrap();
    for state in admin.partitions {
        let count = (state.end - state.start) as usize;
        let values = read(log, "t", state.number, Position::Earliest, count);
        assert_eq!(values.len(), count, "offsets without gaps");
        let mut last = BTreeMap::new();
        for text in values {
            let (name, number) = text.split_once(':').unwrap();
            let number: i64 = number.parse().unwrap();
            let before = last.insert(name.to_owned(), number).unwrap_or(-1);
            assert!(number > before, "{text} after {before}");
            assert!(seen.insert(text.clone()), "{text} twice");
        }
    }
    seen
}

#[test]
fn acknowledged_records_survive_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let log = open(path);
    let new = new_topic("t", 2, &[]);
    log.admin().unwrap().create(&new).unwrap();
    let mut acknowledged = BTreeSet::new();
    let mut steady = Process::start("produce", path, "steady");
    for round in 0..rounds(6, 20) {
        let mut process = Process::start("produce", path, &format!("p{round}"));
        for _ in 0..30 + round * 17 {
            acknowledged.insert(process.line().unwrap());
        }
        acknowledged.insert(steady.line().unwrap());
        acknowledged.extend(process.kill());
    }
    acknowledged.extend(steady.kill());
    let seen = written_once_and_in_order(&*log);
    let lost: Vec<_> = acknowledged.difference(&seen).collect();
    assert!(lost.is_empty(), "lost of {}: {lost:?}", acknowledged.len());
}

/// Reads as the only member of a group and says what it has read, before it commits that.
fn consume(folder: &str, group: &str) {
    let log = open(folder);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(group, &["t"]));
    loop {
        member.step(PATIENCE);
        member.fetch();
        for (partition, offset, text) in member.values.drain(..) {
            say(&text);
            let commit = commit("t", partition.number, offset + 1, "");
            member.member.commit(&[commit], false).unwrap();
        }
    }
}

/// The records of each producer and partition rise.
fn assert_in_order(texts: &[String]) {
    let mut last = BTreeMap::new();
    for text in texts {
        let (name, number) = text.split_once(':').unwrap();
        let number: i64 = number.parse().unwrap();
        let before = last.insert((name, number % 2), number).unwrap_or(-1);
        assert!(number > before, "{text} after {before}");
    }
}

/// Producers, their neighbour and the members of two groups are killed under load, and the neighbour
/// is stopped for a while, maybe with a lock.
#[test]
fn each_group_reads_every_acknowledged_record_through_kills_of_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let log = open(path);
    let new = new_topic("t", 2, &[]);
    log.admin().unwrap().create(&new).unwrap();
    let mut acknowledged = BTreeSet::new();
    let groups = ["one", "two"];
    let mut read = groups.map(|_| BTreeSet::new());
    let mut steady = Process::start("produce", path, "steady");
    for round in 0..rounds(8, 30) {
        let members = groups.map(|group| Process::start("consume", path, group));
        let mut process = Process::start("produce", path, &format!("p{round}"));
        for _ in 0..20 + round * 5 {
            acknowledged.insert(process.line().unwrap());
            acknowledged.insert(steady.line().unwrap());
        }
        steady.signal(libc::SIGSTOP);
        let rest = process.kill();
        assert_in_order(&rest);
        acknowledged.extend(rest);
        for (member, read) in members.into_iter().zip(&mut read) {
            let texts = member.kill();
            assert_in_order(&texts);
            read.extend(texts);
        }
        steady.signal(libc::SIGCONT);
        if round % 2 == 1 {
            acknowledged.extend(steady.kill());
            steady = Process::start("produce", path, &format!("steady{round}"));
        }
    }
    acknowledged.extend(steady.kill());
    let seen = written_once_and_in_order(&*log);
    let lost: Vec<_> = acknowledged.difference(&seen).collect();
    assert!(lost.is_empty(), "lost of {}: {lost:?}", acknowledged.len());
    for (group, mut read) in groups.into_iter().zip(read) {
        let mut member = Process::start("consume", path, group);
        let began = Instant::now();
        while !seen.is_subset(&read) {
            assert!(began.elapsed() < PATIENCE, "group {group} has read {} records", read.len());
            read.insert(member.line().unwrap());
        }
        assert!(read.is_subset(&seen));
    }
}

/// Reads as a member of a group and says what it has. A partition that two
/// have at the same time is found by a lock that is not the log's.
fn read_as_member(folder: &str) {
    let log = open(folder);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.keeps = true;
    let mut locks = BTreeMap::new();
    loop {
        member.step(PATIENCE);
        for gone in std::mem::take(&mut member.revoked) {
            locks.remove(&gone.number);
            member.member.release(&[gone]);
        }
        for number in member.has.iter().map(|assigned| assigned.partition.number) {
            locks.entry(number).or_insert_with(|| {
                let file = std::fs::File::create(format!("{folder}/reads-{number}")).unwrap();
                // SAFETY: a descriptor of ours.
                let code = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
                if code != 0 {
                    say(&format!("two read {number}"));
                }
                file
            });
        }
        let has: Vec<_> = locks.keys().map(ToString::to_string).collect();
        say(&format!("has {}", has.join(" ")));
        member.fetch();
        for (partition, offset, text) in member.values.drain(..) {
            // In this order: what is committed has been read.
            say(&format!("read {text}"));
            member.member.commit(&[commit("t", partition.number, offset + 1, "")], false).unwrap();
        }
    }
}

/// Waits until a member has so many partitions; what it read until then.
fn wait_for(process: &mut Process, count: usize, read: &mut Vec<String>) {
    let began = Instant::now();
    while let Some(line) = process.line() {
        assert!(began.elapsed() < PATIENCE);
        if let Some(text) = line.strip_prefix("read ") {
            read.push(text.to_owned());
        } else {
            let has = line.strip_prefix("has").unwrap_or_else(|| panic!("{line}"));
            if has.split_whitespace().count() == count {
                return;
            }
        }
    }
    panic!("the member has ended");
}

#[test]
fn partitions_of_dead_members_are_reassigned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let log = open(path);
    log.admin().unwrap().create(&new_topic("t", 6, &[])).unwrap();
    let mut settings = LogSettings::for_tests(&format!("log://{path}"));
    settings.answer_timeout = Duration::from_millis(100);
    let hasty = chaton_streams::log::open(&settings).unwrap();
    let mut read = Vec::new();
    let mut first = Process::start("member", path, "");
    wait_for(&mut first, 6, &mut read);
    for round in 0..5 {
        let mut second = Process::start("member", path, "");
        wait_for(&mut first, 3, &mut read);
        wait_for(&mut second, 3, &mut read);
        for number in 0..6 {
            let value = round * 6 + number as usize;
            fill(&*log, "t", number, value..value + 1);
        }
        // A stopped member is alive and keeps its locks. If it holds the group's lock, that is an error.
        second.signal(libc::SIGSTOP);
        match hasty.admin().unwrap().groups() {
            Ok(groups) => assert_eq!(groups[0].members.len(), 2),
            Err(error) => assert!(error.message.contains("stopped"), "{error}"),
        }
        read.extend(
            second.kill().iter().filter_map(|line| line.strip_prefix("read ")).map(Into::into),
        );
        wait_for(&mut first, 6, &mut read);
    }
    let began = Instant::now();
    let mut missing: BTreeSet<_> = (0..30).map(|value: usize| value.to_string()).collect();
    loop {
        read.drain(..).for_each(|text| {
            missing.remove(&text);
        });
        if missing.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "not read: {missing:?}");
        let line = first.line().unwrap();
        read.extend(line.strip_prefix("read ").map(ToOwned::to_owned));
    }
}

/// Writes one record to each of two partitions and commits it, for ever.
fn transact(folder: &str) {
    let log = open(folder);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["from"]));
    member.has(1);
    let mut transactor = log.transactional_producer("one").unwrap();
    let mut number = member.has[0].committed.unwrap_or_default();
    loop {
        let record = |partition| OwnedRecord {
            topic: "to".into(),
            partition: Some(partition),
            value: Some(number.to_string().into_bytes()),
            ..OwnedRecord::default()
        };
        let commits = [commit("from", 0, number + 1, "")];
        let member = member.member.identity();
        transactor.transact(&[record(0), record(1)], "g", &member, &commits, &|| true).unwrap();
        say(&number.to_string());
        number += 1;
    }
}

#[test]
fn a_transaction_is_whole_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let log = open(path);
    let mut admin = log.admin().unwrap();
    admin.create(&new_topic("from", 1, &[])).unwrap();
    admin.create(&new_topic("to", 2, &[])).unwrap();
    // More than are committed: nothing is committed beyond the end.
    fill(&*log, "from", 0, 0..10_000);
    for round in 0..rounds(6, 15) {
        let mut process = Process::start("transact", path, "");
        process.line().unwrap();
        // Somewhere in the middle of one.
        std::thread::sleep(Duration::from_micros(round * 531));
        let last = process.kill().pop();
        let done = admin.committed("g").unwrap()[0].offset;
        if let Some(last) = last {
            assert!(done > last.parse().unwrap(), "what was answered holds");
        }
        let wanted: Vec<_> = (0..done).map(|number| number.to_string()).collect();
        for partition in 0..2 {
            let values = read(&*log, "to", partition, Position::Earliest, done as usize);
            assert_eq!(values, wanted, "round {round}, partition {partition}");
        }
    }
}

/// Acknowledged records are there, refused ones fail, and writing continues when there is room.
fn until_full_and_again(log: &dyn RecordLog, make_room: impl Fn()) {
    let producer = log.producer().unwrap();
    let value = [b'v'; 5000];
    let mut sent = 0;
    let error = loop {
        match send(&*producer, &record("t", &value)) {
            Ok(placed) => assert_eq!(placed.offset, sent),
            Err(error) => break error,
        }
        sent += 1;
        assert!(sent < 5000, "it is never full");
    };
    assert_eq!(error.kind, ErrorKind::Full, "{error}");
    assert!(error.message.contains("disk is full"), "{error}");
    assert!(sent > 10);
    assert_eq!(send(&*producer, &record("t", &value)).unwrap_err().kind, ErrorKind::Full);
    assert_eq!(read(log, "t", 0, Position::Earliest, sent as usize).len(), sent as usize);
    make_room();
    assert_eq!(send(&*producer, &record("t", &value)).unwrap().offset, sent);
    assert_eq!(read(log, "t", 0, Position::Offset(sent), 1).len(), 1);
}

/// A small file system in memory, for who may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        let path = std::ffi::CString::new(disk.0.path().to_str().unwrap()).unwrap();
        // SAFETY: strings of ours that end in NUL.
        let code = unsafe {
            let (kind, size) = (c"tmpfs".as_ptr(), c"size=8m".as_ptr());
            libc::mount(kind, path.as_ptr(), kind, 0, size.cast())
        };
        (code == 0).then_some(disk)
    }

    fn free(&self) -> usize {
        let about = rustix::fs::statvfs(self.0.path()).unwrap();
        (about.f_bavail * about.f_frsize) as usize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: a string of ours; not mounted is an error that is no matter.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    // Who may not mount has the test with a limit, above.
    let Some(disk) = Disk::mount() else { return };
    let path = disk.0.path().to_str().unwrap();
    let log = open(path);
    log.admin().unwrap().create(&new_topic("t", 1, &[])).unwrap();
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; disk.free() - (1 << 20)]).unwrap();
    until_full_and_again(&*log, || std::fs::remove_file(&ballast).unwrap());
    // A transaction that finds no room is none.
    std::fs::write(&ballast, vec![1; disk.free() - (300 << 10)]).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(1);
    let end = || log.admin().unwrap().topic("t").unwrap().unwrap().partitions[0].end;
    let before = end();
    let large = OwnedRecord {
        topic: "t".into(),
        partition: Some(0),
        value: Some(vec![0; 900_000]),
        ..OwnedRecord::default()
    };
    let mut transactor = log.transactional_producer("one").unwrap();
    let member = member.member.identity();
    let commits = [commit("t", 0, 1, "")];
    let error = transactor.transact(&[large], "g", &member, &commits, &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full, "{error}");
    assert_eq!((end(), log.admin().unwrap().committed("g").unwrap()), (before, vec![]));
}
