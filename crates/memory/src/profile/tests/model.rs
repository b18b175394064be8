//! Random allocations, collections and compactions, compared with lists of objects.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::super::{age_bucket, CollectionKind, ObjectState, Profile, Report, SiteTotals};
use super::{about, name_all, WIDE};

const FRAMES: usize = 12;
const CLASSES: usize = 5;

struct Object {
    stack: Vec<(usize, u32)>,
    class: usize,
    bytes: usize,
    weight: f64,
    age: u16,
    old: bool,
}

/// Keys name frames and classes by number, not by address.
type Key = (Vec<(usize, u32)>, usize);

#[derive(Default)]
struct Model {
    living: BTreeMap<usize, Object>,
    sums: BTreeMap<Key, SiteTotals>,
    next: usize,
    /// Added to every number of an object, frame or class to get its address.
    shift: usize,
}

impl Model {
    fn address(&self, number: usize) -> usize {
        number * 8 + self.shift
    }

    fn tally(&mut self, object: &Object) -> &mut SiteTotals {
        self.sums.entry((object.stack.clone(), object.class)).or_default()
    }

    fn allocate(&mut self, profile: &mut Profile, random: &mut Rng) {
        let depth = random.usize(..) % 6;
        let stack: Vec<(usize, u32)> =
            (0..depth).map(|_| (random.usize(..) % FRAMES + 1, random.u32(..) % 3)).collect();
        let class = 100 + random.usize(..) % CLASSES;
        let bytes = 40 * (1 + random.usize(..) % 4);
        let weight = 1.0 + (random.u64(..) % 100) as f64;
        self.next += 1;
        let number = 1000 + self.next;
        let frames: Vec<(usize, u32)> =
            stack.iter().map(|(frame, line)| (self.address(*frame), *line)).collect();
        let (at, class_at) = (self.address(number), self.address(class));
        profile.sample(at, class_at, 1, bytes, &frames, weight);
        let object = Object { stack, class, bytes, weight, age: 0, old: false };
        let tally = self.tally(&object);
        tally.samples += 1;
        tally.allocated.add(weight, bytes);
        self.living.insert(number, object);
    }

    fn collect(&mut self, profile: &mut Profile, random: &mut Rng) {
        let mut fates: BTreeMap<usize, ObjectState> = BTreeMap::new();
        let numbers: Vec<usize> = self.living.keys().copied().collect();
        for number in numbers {
            let state = self.settle(number, random);
            fates.insert(self.address(number), state);
        }
        let kind = if random.u32(..4) == 0 { CollectionKind::Major } else { CollectionKind::Minor };
        profile.after_mark(kind, |object| fates[&object]);
    }

    /// Decides an object's state and adds it up.
    fn settle(&mut self, number: usize, random: &mut Rng) -> ObjectState {
        let mut object = self.living.remove(&number).unwrap();
        let class = if random.u32(..16) == 0 { 100 + random.usize(..) % CLASSES } else { 0 };
        if class != 0 && class != object.class {
            let moved = self.tally(&object);
            moved.samples -= 1;
            moved.allocated.add(-object.weight, object.bytes);
            object.class = class;
            let tally = self.tally(&object);
            tally.samples += 1;
            tally.allocated.add(object.weight, object.bytes);
        }
        let bytes = if random.u32(..8) == 0 { 8 * (1 + random.usize(..) % 40) } else { 0 };
        if bytes != 0 {
            let change = (bytes as f64 - object.bytes as f64) * object.weight;
            let age = age_bucket(object.age);
            let tally = self.tally(&object);
            if change > 0.0 {
                tally.allocated.bytes += change;
            } else {
                tally.freed.bytes -= change;
                tally.freed_ages[age].bytes -= change;
            }
            object.bytes = bytes;
        }
        let alive = random.u32(..2) != 0 || object.old;
        let old = alive && (object.old || object.age > 1);
        let (weight, size, age) = (object.weight, object.bytes, age_bucket(object.age));
        let newly_old = old && !object.old;
        let tally = self.tally(&object);
        if !alive {
            tally.freed.add(weight, size);
            tally.freed_ages[age].add(weight, size);
        } else if newly_old {
            tally.promoted.add(weight, size);
        }
        if alive {
            self.living.insert(number, Object { age: object.age + 1, old, ..object });
        }
        let class = if class == 0 { 0 } else { self.address(class) };
        ObjectState { alive, old, bytes, class }
    }

    fn compact(&mut self, profile: &mut Profile, random: &mut Rng) {
        let shift = 8 * (random.usize(..) % 1_000_000);
        let before = std::mem::replace(&mut self.shift, shift);
        profile.relocate(|address| address - before + shift);
    }

    /// The totals with the live objects.
    fn totals(&self) -> BTreeMap<Key, SiteTotals> {
        let mut totals = self.sums.clone();
        for object in self.living.values() {
            let tally = totals.get_mut(&(object.stack.clone(), object.class)).unwrap();
            tally.live.add(object.weight, object.bytes);
            tally.live_ages[age_bucket(object.age)].add(object.weight, object.bytes);
            if object.old {
                tally.old.add(object.weight, object.bytes);
            }
        }
        totals
    }
}

/// The number in a name; names in these tests are a letter and a number.
fn number(name: &str) -> usize {
    name[1..].parse().unwrap()
}

fn by_number(report: &Report) -> BTreeMap<Key, SiteTotals> {
    let row = |row: &super::super::SiteRow| {
        let stack = report.stack(row.stack).map(|(frame, line)| (number(&frame.label), line));
        ((stack.collect(), number(report.class(row.class))), row.tally.clone())
    };
    report.rows.iter().map(row).collect()
}

fn name_by_number(profile: &mut Profile, shift: usize) {
    name_all(profile);
    for id in profile_ids(profile) {
        let label = format!("f{}", (id - shift) / 8);
        let frame = super::Frame { label, path: "/a.rb".into(), line: 1 };
        profile.name_frame(id, frame);
        profile.name_class(id, format!("C{}", (id - shift) / 8));
    }
}

fn profile_ids(profile: &Profile) -> Vec<usize> {
    let mut ids = Vec::new();
    profile.roots(|id| ids.push(id));
    ids
}

fn same(found: f64, expected: f64, what: &str) {
    let room = 1e-6 * (1.0 + expected.abs());
    assert!((found - expected).abs() < room, "{what}: {found} instead of {expected}");
}

fn compare(found: &SiteTotals, expected: &SiteTotals, what: &str) {
    let pairs = |tally: &SiteTotals| {
        let mut all = vec![tally.allocated, tally.freed, tally.live, tally.promoted, tally.old];
        all.extend(tally.freed_ages);
        all.extend(tally.live_ages);
        all
    };
    for (mine, theirs) in pairs(found).into_iter().zip(pairs(expected)) {
        same(mine.objects, theirs.objects, what);
        same(mine.bytes, theirs.bytes, what);
    }
    assert_eq!(found.samples, expected.samples, "{what}");
}

#[test]
fn the_profile_agrees_with_the_model() {
    for seed in 1..=30 {
        let mut random = Rng::with_seed(seed * 7919);
        let mut profile = Profile::new(WIDE);
        let mut model = Model::default();
        for _ in 0..60 {
            for _ in 0..random.u64(..) % 50 {
                model.allocate(&mut profile, &mut random);
            }
            match random.u64(..) % 4 {
                0 => model.compact(&mut profile, &mut random),
                _ => model.collect(&mut profile, &mut random),
            }
            assert_eq!(profile.followed(), model.living.len());
        }
        name_by_number(&mut profile, model.shift);
        let report = profile.report(about(0));
        let found = by_number(&report);
        let mut expected = model.totals();
        expected.retain(|_, tally| !tally.is_empty());
        let keys = |map: &BTreeMap<Key, SiteTotals>| map.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&found), keys(&expected), "seed {seed}");
        for (key, tally) in &expected {
            compare(&found[key], tally, &format!("seed {seed}, {key:?}"));
        }
        conserved(&report);
    }
}

/// Each allocated object is freed or live, also in the totals of all collections.
fn conserved(report: &Report) {
    let total = report.total();
    same(total.allocated.bytes, total.freed.bytes + total.live.bytes, "bytes");
    same(total.allocated.objects, total.freed.objects + total.live.objects, "objects");
    same(report.freed_lately().bytes, total.freed.bytes, "freed by each collection");
    let promoted: f64 = report.collections.iter().map(|one| one.promoted.bytes).sum();
    same(promoted, total.promoted.bytes, "promoted by each collection");
}

#[test]
fn all_frames_and_classes_are_roots() {
    let mut profile = Profile::new(WIDE);
    profile.sample(0x100, 70, 5, 40, &[(10, 1), (20, 2)], 1.0);
    profile.sample(0x200, 0, 0x1a, 40, &[(10, 9)], 1.0);
    let mut roots = profile_ids(&profile);
    roots.sort_unstable();
    assert_eq!(roots, [10, 20, 70]);
    assert_eq!(profile.unnamed_classes(), [70]);
    name_all(&mut profile);
    assert!(profile.unnamed_frames().is_empty() && profile.unnamed_classes().is_empty());
    let report = profile.report(about(0));
    assert!(report.classes.iter().any(|class| class == "(internal)"), "{:?}", report.classes);
}
