//! Totals per allocation site, which is a pair of stack and class.

use super::live_samples::LiveSample;
use super::recent_collections::CollectionRecord;
use super::report::SiteRow;
use super::totals::{age_bucket, ObjectTotals, SiteTotals, TotalsByAge};
use super::ObjectState;
use rustc_hash::FxHashMap;

/// The index of `(other)` in the table of classes.
const OTHER_CLASS: u32 = 0;

struct ClassName {
    /// Its address; 0 for objects without a class.
    id: usize,
    /// Ruby's number of the type, from which the name is made until it is known.
    kind: u8,
    name: Option<String>,
}

/// Totals of one stack and class. Live objects are added up from the samples when a
/// report is made, so that survivors cost nothing.
struct AllocationSite {
    stack: u32,
    class: u32,
    samples: u64,
    allocated: ObjectTotals,
    promoted: ObjectTotals,
    freed_ages: TotalsByAge,
}

impl AllocationSite {
    fn of(stack: u32, class: u32) -> Self {
        Self {
            stack,
            class,
            samples: 0,
            allocated: ObjectTotals::default(),
            promoted: ObjectTotals::default(),
            freed_ages: TotalsByAge::default(),
        }
    }
}

/// A bounded table of sites, with the classes they refer to.
pub(super) struct AllocationSites {
    /// Bound of the sites, besides one per stack for the classes beyond it.
    sites_max: usize,
    classes: Vec<ClassName>,
    /// By address, or by type for objects without a class.
    class_index: FxHashMap<(usize, u8), u32>,
    sites: Vec<AllocationSite>,
    site_index: FxHashMap<(u32, u32), u32>,
}

fn class_key(id: usize, kind: u8) -> (usize, u8) {
    (id, if id == 0 { kind } else { 0 })
}

impl AllocationSites {
    pub(super) fn new(sites_max: usize) -> Self {
        let other = ClassName { id: 0, kind: 0, name: Some("(other)".into()) };
        Self {
            sites_max,
            classes: vec![other],
            class_index: FxHashMap::default(),
            sites: Vec::new(),
            site_index: FxHashMap::default(),
        }
    }

    /// The site of a stack and class, and whether it is exact: when the table is full,
    /// new classes of a stack share its site for other classes.
    pub(super) fn find_or_add(&mut self, stack: u32, class: usize, kind: u8) -> (u32, bool) {
        let key = class_key(class, kind);
        let room = self.sites.len() < self.sites_max;
        let class_index = match self.class_index.get(&key) {
            Some(&known) => known,
            None if !room => return (self.site(stack, OTHER_CLASS), false),
            None => {
                let index = self.classes.len() as u32;
                self.classes.push(ClassName { id: class, kind, name: None });
                self.class_index.insert(key, index);
                index
            }
        };
        if room || self.site_index.contains_key(&(stack, class_index)) {
            (self.site(stack, class_index), true)
        } else {
            (self.site(stack, OTHER_CLASS), false)
        }
    }

    fn site(&mut self, stack: u32, class: u32) -> u32 {
        let sites = &mut self.sites;
        *self.site_index.entry((stack, class)).or_insert_with(|| {
            sites.push(AllocationSite::of(stack, class));
            sites.len() as u32 - 1
        })
    }

    pub(super) fn allocated(&mut self, site: u32, weight: f64, bytes: usize) {
        let site = &mut self.sites[site as usize];
        site.samples += 1;
        site.allocated.add(weight, bytes);
    }

    /// Adds up a sample's state after a collection; true if it is alive.
    pub(super) fn update(
        &mut self,
        sample: &mut LiveSample,
        state: &ObjectState,
        sum: &mut CollectionRecord,
    ) -> bool {
        if state.class != 0 {
            self.reclass(sample, state.class);
        }
        if state.bytes != 0 && state.bytes != sample.bytes {
            self.resize(sample, state.bytes, sum);
        }
        let (weight, bytes) = (sample.weight, sample.bytes);
        if !state.alive {
            self.freed_at(sample).add(weight, bytes);
            sum.freed.add(weight, bytes);
            if sample.old {
                sum.freed_old.add(weight, bytes);
            }
            return false;
        }
        if state.old && !sample.old {
            self.sites[sample.site as usize].promoted.add(weight, bytes);
            sum.promoted.add(weight, bytes);
        }
        sample.old = state.old;
        sample.age = sample.age.saturating_add(1);
        sum.surviving.add(weight, bytes);
        if sample.old {
            sum.old.add(weight, bytes);
        }
        true
    }

    fn freed_at(&mut self, sample: &LiveSample) -> &mut ObjectTotals {
        &mut self.sites[sample.site as usize].freed_ages[age_bucket(sample.age)]
    }

    /// Moves a sample and its allocated bytes to the site of another class, because an
    /// object's class may be set after its allocation.
    fn reclass(&mut self, sample: &mut LiveSample, class: usize) {
        let site = &self.sites[sample.site as usize];
        let before = &self.classes[site.class as usize];
        if before.id == class || site.class == OTHER_CLASS {
            return;
        }
        let (stack, kind) = (site.stack, before.kind);
        let (to, _) = self.find_or_add(stack, class, kind);
        let mut moved = ObjectTotals::default();
        moved.add(sample.weight, sample.bytes);
        self.sites[to as usize].allocated += moved;
        self.sites[to as usize].samples += 1;
        let from = &mut self.sites[sample.site as usize];
        from.allocated += ObjectTotals { objects: -moved.objects, bytes: -moved.bytes };
        from.samples = from.samples.saturating_sub(1);
        sample.site = to;
    }

    /// Counts an object's growth as allocated, and its shrinking as freed.
    pub(super) fn resize(
        &mut self,
        sample: &mut LiveSample,
        bytes: usize,
        sum: &mut CollectionRecord,
    ) {
        if bytes > sample.bytes {
            let grown = (bytes - sample.bytes) as f64 * sample.weight;
            self.sites[sample.site as usize].allocated.bytes += grown;
            sum.allocated.bytes += grown;
        } else {
            let shed = (sample.bytes - bytes) as f64 * sample.weight;
            self.freed_at(sample).bytes += shed;
            sum.freed.bytes += shed;
        }
        sample.bytes = bytes;
    }

    pub(super) fn relocate(&mut self, new_address: &mut impl FnMut(usize) -> usize) {
        self.class_index.clear();
        for (index, class) in self.classes.iter_mut().enumerate().skip(1) {
            if class.id != 0 {
                class.id = new_address(class.id);
            }
            self.class_index.insert(class_key(class.id, class.kind), index as u32);
        }
    }

    pub(super) fn class_ids(&self) -> impl Iterator<Item = usize> + '_ {
        self.classes.iter().map(|class| class.id).filter(|id| *id != 0)
    }

    pub(super) fn unnamed(&self) -> Vec<usize> {
        let unnamed = self.classes.iter().filter(|class| class.id != 0 && class.name.is_none());
        unnamed.map(|class| class.id).collect()
    }

    pub(super) fn name(&mut self, id: usize, name: String) {
        if let Some(&index) = self.class_index.get(&(id, 0)) {
            self.classes[index as usize].name = Some(name);
        }
    }

    pub(super) fn class_names(&self) -> Vec<String> {
        let name =
            |class: &ClassName| class.name.clone().unwrap_or_else(|| kind_name(class.kind).into());
        self.classes.iter().map(name).collect()
    }

    /// The totals of all sites, with the live objects.
    pub(super) fn rows(&self, samples: &[LiveSample]) -> Vec<SiteRow> {
        let mut rows: Vec<SiteRow> = self.sites.iter().map(row).collect();
        for sample in samples {
            let tally = &mut rows[sample.site as usize].tally;
            tally.live.add(sample.weight, sample.bytes);
            tally.live_ages[age_bucket(sample.age)].add(sample.weight, sample.bytes);
            if sample.old {
                tally.old.add(sample.weight, sample.bytes);
            }
        }
        rows
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.classes.iter().flat_map(|class| &class.name).map(String::len).sum();
        names
            + self.classes.capacity() * size_of::<ClassName>()
            + self.class_index.capacity() * 25
            + self.sites.capacity() * size_of::<AllocationSite>()
            + self.site_index.capacity() * 13
    }
}

fn row(site: &AllocationSite) -> SiteRow {
    let mut tally = SiteTotals {
        samples: site.samples,
        allocated: site.allocated,
        promoted: site.promoted,
        freed_ages: site.freed_ages,
        ..SiteTotals::default()
    };
    for age in site.freed_ages {
        tally.freed += age;
    }
    SiteRow { stack: site.stack, class: site.class, tally }
}

/// The name of a type by Ruby's number (`ruby_value_type`, the same from 3.1 to 4.0),
/// for objects without a class.
fn kind_name(kind: u8) -> &'static str {
    match kind {
        0x01 => "(object)",
        0x02 => "(class)",
        0x03 => "(module)",
        0x04 => "(float)",
        0x05 => "(string)",
        0x06 => "(regexp)",
        0x07 => "(array)",
        0x08 => "(hash)",
        0x09 => "(struct)",
        0x0a => "(bignum)",
        0x0b => "(file)",
        0x0c => "(data)",
        0x0d => "(match)",
        0x0e => "(complex)",
        0x0f => "(rational)",
        0x14 => "(symbol)",
        0x1a => "(internal)",
        0x1b => "(syntax tree)",
        0x1c => "(included module)",
        _ => "(unknown)",
    }
}
