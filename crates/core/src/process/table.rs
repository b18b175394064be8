//! Tables of what is counted: a row has the shared cell, and how the metrics, the dashboard and `chaton status`
//! show it. The module `counters` has the tables.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::times::{TimeHistogram, TimeTotals};
use crate::clock::wall_s;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
    /// How many times took how long.
    Histogram,
}

/// How cells of several workers become one number, and what is left of one whose worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The sum; it stays.
    Count,
    /// The sum; it begins with the worker.
    WorkerCount,
    /// The sum; it goes with the worker.
    Sum,
    /// The largest.
    Highest,
    /// The smallest that is not 0.
    Earliest,
    /// The same; a time (ms since 1970) that is shown as its age.
    Oldest,
}

const RULES: [Rule; 6] =
    [Rule::Count, Rule::WorkerCount, Rule::Sum, Rule::Highest, Rule::Earliest, Rule::Oldest];

/// A number in shared memory, by the place of its rule in `RULES`.
#[repr(transparent)]
#[derive(Default)]
pub struct Cell<const RULE: usize>(AtomicU64);

/// Only grows, over all workers of a slot.
pub type Counter = Cell<0>;
/// Grows while the worker lives.
pub type WorkerCounter = Cell<1>;
/// A part of a sum.
pub type Gauge = Cell<2>;
/// The largest of all workers is shown.
pub type Highest = Cell<3>;
/// The smallest of all workers is shown; 0: none.
pub type Earliest = Cell<4>;
/// A time (ms since 1970) whose age is shown, of the worker that has the oldest; 0: none.
pub type Oldest = Cell<5>;

impl<const RULE: usize> Deref for Cell<RULE> {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// A value that is shown.
#[derive(Clone, Copy, Debug)]
pub enum Reading<'a> {
    /// A number.
    Number(u64),
    /// A time.
    Seconds(f64),
    /// Many times.
    Times(&'a TimeTotals),
}

/// A cell of a table.
pub trait Counted {
    /// What several of them add up to.
    type Total: Clone + std::fmt::Debug + Default;
    /// What shows it.
    const KIND: Kind;

    /// Adds it to others.
    fn add_to(&self, total: &mut Self::Total);
    /// Its worker has ended.
    fn end(&self);
    /// How a total is shown.
    fn reading(total: &Self::Total) -> Reading<'_>;
}

impl<const RULE: usize> Counted for Cell<RULE> {
    type Total = u64;
    const KIND: Kind = match RULES[RULE] {
        Rule::Count | Rule::WorkerCount => Kind::Counter,
        _ => Kind::Gauge,
    };

    fn add_to(&self, total: &mut u64) {
        let value = self.load(Relaxed);
        *total = match RULES[RULE] {
            Rule::Count | Rule::WorkerCount | Rule::Sum => total.wrapping_add(value),
            Rule::Earliest | Rule::Oldest if *total != 0 && value != 0 => value.min(*total),
            _ => value.max(*total),
        };
    }

    fn end(&self) {
        if RULES[RULE] != Rule::Count {
            self.store(0, Relaxed);
        }
    }

    fn reading(total: &u64) -> Reading<'_> {
        match (RULES[RULE], *total) {
            (Rule::Oldest, 0) => Reading::Seconds(0.0),
            // The clock of the writer may be ahead.
            (Rule::Oldest, at_ms) => Reading::Seconds((wall_s() - at_ms as f64 / 1e3).max(0.0)),
            (_, total) => Reading::Number(total),
        }
    }
}

impl Counted for AtomicU32 {
    type Total = u64;
    const KIND: Kind = Kind::Gauge;

    fn add_to(&self, total: &mut u64) {
        *total += u64::from(self.load(Relaxed));
    }

    fn end(&self) {
        self.store(0, Relaxed);
    }

    fn reading(total: &u64) -> Reading<'_> {
        Reading::Number(*total)
    }
}

impl Counted for TimeHistogram {
    type Total = TimeTotals;
    const KIND: Kind = Kind::Histogram;

    fn add_to(&self, total: &mut TimeTotals) {
        self.sum_into(total);
    }

    fn end(&self) {}

    fn reading(total: &TimeTotals) -> Reading<'_> {
        Reading::Times(total)
    }
}

/// How a cell is shown.
pub struct Row<Totals> {
    /// Its name in the dashboard's document and in `status`; what stands before a point is the name of an object.
    pub key: &'static str,
    /// The metric; empty where none shows it. Rows with the same one stand together, the first one has its text.
    pub name: &'static str,
    /// What the metric is.
    pub kind: Kind,
    /// `seconds`, `bytes`, or nothing.
    pub unit: &'static str,
    /// How much of the cell is one of the unit.
    pub scale: f64,
    /// A label of the metric that tells this row from others of the same name.
    pub label: Option<(&'static str, &'static str)>,
    /// For people.
    pub help: &'static str,
    /// Reads the value.
    pub read: fn(&Totals) -> Reading<'_>,
}

/// A table.
pub trait Table {
    /// The sums of several of them.
    type Totals: Clone + std::fmt::Debug + Default + 'static;
    /// How each cell is shown.
    const ROWS: &'static [Row<Self::Totals>];
    /// Names and types of the cells, in their order.
    const CELLS: &'static str;

    /// Adds the cells to those of others.
    fn add_to(&self, totals: &mut Self::Totals);
    /// Their worker has ended.
    fn end(&self);

    /// The sums of these.
    fn sum<'a>(tables: impl Iterator<Item = &'a Self>) -> Self::Totals
    where
        Self: 'a,
    {
        let mut totals = Self::Totals::default();
        tables.for_each(|one| one.add_to(&mut totals));
        totals
    }

    /// Whether anything was counted.
    fn is_used(totals: &Self::Totals) -> bool {
        Self::ROWS.iter().any(|row| match (row.read)(totals) {
            Reading::Number(number) => number > 0,
            Reading::Seconds(seconds) => seconds > 0.0,
            Reading::Times(times) => times.count() > 0,
        })
    }
}

/// The last of several literals, of which the first is what holds without the others.
macro_rules! last {
    ($one:expr) => { $one };
    ($one:expr, $($more:expr),+) => { $crate::process::table::last!($($more),+) };
}
pub(crate) use last;

/// Defines a table: `CELL: TYPE as "key" => "metric" {label = "value"} in unit / scale, "text";`, where all from `as`
/// to the text may be missing.
macro_rules! table {
    (
        $(#[$attribute:meta])* $table:ident, $totals:ident {
            $($cell:ident: $type:ty $(as $key:literal)?
                $(=> $name:literal $({$label:ident = $value:literal})? $(in $unit:ident)? $(/ $scale:literal)?)?,
                $help:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Default)]
        pub struct $table { $(#[doc = $help] pub $cell: $type,)* }

        #[doc = concat!("The sums of several [`", stringify!($table), "`].")]
        #[derive(Clone, Debug, Default)]
        pub struct $totals {
            $(#[doc = $help] pub $cell: <$type as $crate::process::table::Counted>::Total,)*
        }

        impl $crate::process::table::Table for $table {
            type Totals = $totals;
            const ROWS: &'static [$crate::process::table::Row<$totals>] = &[$(
                $crate::process::table::Row {
                    key: $crate::process::table::last!(stringify!($cell) $(, $key)?),
                    name: $crate::process::table::last!("" $(, $name)?),
                    kind: <$type as $crate::process::table::Counted>::KIND,
                    unit: $crate::process::table::last!("" $($(, stringify!($unit))?)?),
                    scale: $crate::process::table::last!(1.0 $($(, $scale)?)?),
                    label: $crate::process::table::last!(None $($(, Some((stringify!($label), $value)))?)?),
                    help: $help,
                    read: |totals| <$type as $crate::process::table::Counted>::reading(&totals.$cell),
                },
            )*];
            const CELLS: &'static str =
                concat!($(stringify!($cell), ": ", stringify!($type), ", ",)*);

            fn add_to(&self, totals: &mut $totals) {
                $($crate::process::table::Counted::add_to(&self.$cell, &mut totals.$cell);)*
            }

            fn end(&self) {
                $($crate::process::table::Counted::end(&self.$cell);)*
            }
        }
    };
}
pub(crate) use table;

/// A number that differs where the texts do, for [`crate::shared_mapping::Layout::version`].
pub(crate) const fn version_of(texts: &[&str]) -> u64 {
    // FNV-1a.
    let (mut hash, mut text) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while text < texts.len() {
        let (bytes, mut at) = (texts[text].as_bytes(), 0);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        text += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    table! {
        /// All kinds of cells.
        AllCounters, AllTotals {
            counter: Counter => "counts" {kind = "kept"}, "Counts";
            worker: WorkerCounter as "of.worker" => "counts" {kind = "own"}, "More";
            gauge: Gauge => "gauge" in bytes / 1e3, "A size";
            highest: Highest, "Shown by no metric";
            earliest: Earliest => "earliest" in seconds, "A time";
            oldest: Oldest as "age_s" => "age" in seconds, "An age";
            small: AtomicU32, "A small number";
            times: TimeHistogram => "times" in seconds, "Times";
        }
    }

    fn counters(number: u64) -> AllCounters {
        let all = AllCounters::default();
        let cells: [&AtomicU64; 6] =
            [&all.counter, &all.worker, &all.gauge, &all.highest, &all.earliest, &all.oldest];
        cells.iter().for_each(|cell| cell.store(number, Relaxed));
        all.small.store(number as u32, Relaxed);
        all.times.add(number);
        all
    }

    fn numbers(totals: &AllTotals) -> [u64; 8] {
        let AllTotals { counter, worker, gauge, highest, earliest, oldest, small, times } = totals;
        [*counter, *worker, *gauge, *highest, *earliest, *oldest, *small, times.count()]
    }

    #[test]
    fn each_cell_follows_its_rule() {
        let [none, low, high] = [0, 3, 5].map(counters);
        none.times.end();
        let sum = AllCounters::sum([&high, &none, &low].into_iter());
        assert_eq!(numbers(&sum), [8, 8, 8, 5, 3, 3, 8, 3]);
        assert!(AllCounters::is_used(&sum) && !AllCounters::is_used(&AllTotals::default()));
        low.end();
        let left = AllCounters::sum([&low].into_iter());
        assert_eq!(numbers(&left), [3, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn rows_say_how_cells_are_shown() {
        let rows = AllCounters::ROWS;
        let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
        let named = ["counter", "of.worker", "gauge", "highest", "earliest", "age_s", "small"];
        assert_eq!(keys, [&named[..], &["times"]].concat());
        let kinds: Vec<_> = rows.iter().map(|row| row.kind).collect();
        use Kind::{Counter, Gauge, Histogram};
        assert_eq!(kinds, [Counter, Counter, Gauge, Gauge, Gauge, Gauge, Gauge, Histogram]);
        assert_eq!((rows[1].name, rows[1].label), ("counts", Some(("kind", "own"))));
        assert_eq!((rows[2].unit, rows[2].scale, rows[3].name), ("bytes", 1e3, ""));
        let totals = AllTotals { oldest: 1, ..AllTotals::default() };
        assert!(matches!((rows[5].read)(&totals), Reading::Seconds(age) if age > 1e9));
        assert!(AllCounters::CELLS.starts_with("counter: Counter,"), "{}", AllCounters::CELLS);
    }
}
