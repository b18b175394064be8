//! What is summed per pair of stack and class.

use super::amount::{age_bucket, Ages, Amount, Tally};
use super::hash::Map;
use super::live::Sample;
use super::recent::Collected;
use super::report::Row;
use super::Fate;

/// The classes' index of "some class or other".
const OTHER_CLASS: u32 = 0;

struct Class {
    /// Its address; 0 for objects that have none.
    id: usize,
    /// Ruby's number of the type, which names it until something better does.
    kind: u8,
    name: Option<String>,
}

/// Sums of one stack and class. What is live is not here: it is added up from
/// the samples when asked for, so that survivors cost nothing.
struct Cell {
    stack: u32,
    class: u32,
    samples: u64,
    allocated: Amount,
    promoted: Amount,
    freed_ages: Ages,
}

impl Cell {
    fn of(stack: u32, class: u32) -> Self {
        Self {
            stack,
            class,
            samples: 0,
            allocated: Amount::default(),
            promoted: Amount::default(),
            freed_ages: Ages::default(),
        }
    }
}

/// A bounded table of cells, with the classes they refer to.
pub(super) struct Cells {
    /// Most cells, besides one per stack for what found no room.
    cells_max: usize,
    classes: Vec<Class>,
    /// By address, or by type for those without a class.
    class_index: Map<(usize, u8), u32>,
    cells: Vec<Cell>,
    cell_index: Map<(u32, u32), u32>,
}

fn class_key(id: usize, kind: u8) -> (usize, u8) {
    (id, if id == 0 { kind } else { 0 })
}

impl Cells {
    pub(super) fn new(cells_max: usize) -> Self {
        let other = Class { id: 0, kind: 0, name: Some("(other)".into()) };
        Self {
            cells_max,
            classes: vec![other],
            class_index: Map::default(),
            cells: Vec::new(),
            cell_index: Map::default(),
        }
    }

    /// The cell of a stack and class, and whether it is that of the class: if it
    /// is new and there is no room, the stack's other classes share one.
    pub(super) fn find_or_add(&mut self, stack: u32, class: usize, kind: u8) -> (u32, bool) {
        let key = class_key(class, kind);
        let room = self.cells.len() < self.cells_max;
        let class_index = match self.class_index.get(&key) {
            Some(&known) => known,
            None if !room => return (self.cell(stack, OTHER_CLASS), false),
            None => {
                let index = self.classes.len() as u32;
                self.classes.push(Class { id: class, kind, name: None });
                self.class_index.insert(key, index);
                index
            }
        };
        if room || self.cell_index.contains_key(&(stack, class_index)) {
            (self.cell(stack, class_index), true)
        } else {
            (self.cell(stack, OTHER_CLASS), false)
        }
    }

    fn cell(&mut self, stack: u32, class: u32) -> u32 {
        let cells = &mut self.cells;
        *self.cell_index.entry((stack, class)).or_insert_with(|| {
            cells.push(Cell::of(stack, class));
            cells.len() as u32 - 1
        })
    }

    pub(super) fn allocated(&mut self, cell: u32, weight: f64, bytes: usize) {
        let cell = &mut self.cells[cell as usize];
        cell.samples += 1;
        cell.allocated.add(weight, bytes);
    }

    /// Books what a collection made of a sample; true if it lives on.
    pub(super) fn settle(&mut self, sample: &mut Sample, fate: &Fate, sum: &mut Collected) -> bool {
        if fate.class != 0 {
            self.reclass(sample, fate.class);
        }
        if fate.bytes != 0 && fate.bytes != sample.bytes {
            self.resize(sample, fate.bytes, sum);
        }
        let (weight, bytes) = (sample.weight, sample.bytes);
        if !fate.alive {
            self.freed_at(sample).add(weight, bytes);
            sum.freed.add(weight, bytes);
            if sample.old {
                sum.freed_old.add(weight, bytes);
            }
            return false;
        }
        if fate.old && !sample.old {
            self.cells[sample.cell as usize].promoted.add(weight, bytes);
            sum.promoted.add(weight, bytes);
        }
        sample.old = fate.old;
        sample.age = sample.age.saturating_add(1);
        sum.surviving.add(weight, bytes);
        if sample.old {
            sum.old.add(weight, bytes);
        }
        true
    }

    fn freed_at(&mut self, sample: &Sample) -> &mut Amount {
        &mut self.cells[sample.cell as usize].freed_ages[age_bucket(sample.age)]
    }

    /// Moves a sample, and what was allocated with it, to the cell of another
    /// class: an object's class may be set after its allocation.
    fn reclass(&mut self, sample: &mut Sample, class: usize) {
        let cell = &self.cells[sample.cell as usize];
        let before = &self.classes[cell.class as usize];
        if before.id == class || cell.class == OTHER_CLASS {
            return;
        }
        let (stack, kind) = (cell.stack, before.kind);
        let (to, _) = self.find_or_add(stack, class, kind);
        let mut moved = Amount::default();
        moved.add(sample.weight, sample.bytes);
        self.cells[to as usize].allocated += moved;
        self.cells[to as usize].samples += 1;
        let from = &mut self.cells[sample.cell as usize];
        from.allocated += Amount { objects: -moved.objects, bytes: -moved.bytes };
        from.samples = from.samples.saturating_sub(1);
        sample.cell = to;
    }

    /// An object grew (which counts as allocated) or shrank (as freed).
    pub(super) fn resize(&mut self, sample: &mut Sample, bytes: usize, sum: &mut Collected) {
        if bytes > sample.bytes {
            let grown = (bytes - sample.bytes) as f64 * sample.weight;
            self.cells[sample.cell as usize].allocated.bytes += grown;
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
            |class: &Class| class.name.clone().unwrap_or_else(|| kind_name(class.kind).into());
        self.classes.iter().map(name).collect()
    }

    /// All sums, with those of the living.
    pub(super) fn rows(&self, samples: &[Sample]) -> Vec<Row> {
        let mut rows: Vec<Row> = self.cells.iter().map(row).collect();
        for sample in samples {
            let tally = &mut rows[sample.cell as usize].tally;
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
            + self.classes.capacity() * size_of::<Class>()
            + self.class_index.capacity() * 25
            + self.cells.capacity() * size_of::<Cell>()
            + self.cell_index.capacity() * 13
    }
}

fn row(cell: &Cell) -> Row {
    let mut tally = Tally {
        samples: cell.samples,
        allocated: cell.allocated,
        promoted: cell.promoted,
        freed_ages: cell.freed_ages,
        ..Tally::default()
    };
    for age in cell.freed_ages {
        tally.freed += age;
    }
    Row { stack: cell.stack, class: cell.class, tally }
}

/// What objects are called that have no class, by Ruby's number of their type
/// (`ruby_value_type`, the same from 3.1 to 4.0).
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
