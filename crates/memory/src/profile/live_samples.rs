//! The samples of live objects, in a bounded list.

use fastrand::Rng;

/// Bound of [`LiveSamples::keep_one_in`].
const KEEP_ONE_IN_MAX: u32 = 1 << 20;

/// A followed object.
pub(super) struct LiveSample {
    pub(super) object: usize,
    pub(super) bytes: usize,
    /// The number of objects that this one stands for.
    pub(super) weight: f64,
    pub(super) site: u32,
    /// Collections survived.
    pub(super) age: u16,
    pub(super) old: bool,
}

/// Followed objects, oldest first.
pub(super) struct LiveSamples {
    pub(super) samples: Vec<LiveSample>,
    samples_max: usize,
    /// One of so many new samples is followed, with so many times the weight.
    pub(super) keep_one_in: u32,
    /// How often the list was thinned out.
    pub(super) thinned: u64,
}

impl LiveSamples {
    pub(super) fn new(samples_max: usize) -> Self {
        Self { samples: Vec::new(), samples_max, keep_one_in: 1, thinned: 0 }
    }

    /// Follows a new sample, unless it is thinned out.
    pub(super) fn follow(&mut self, mut sample: LiveSample, random: &mut Rng) {
        if random.u32(..self.keep_one_in) != 0 {
            return;
        }
        sample.weight *= f64::from(self.keep_one_in);
        if self.samples.len() >= self.samples_max {
            self.thin(random);
            if random.u32(..2) != 0 {
                return;
            }
            sample.weight *= 2.0;
        }
        self.samples.push(sample);
    }

    /// Drops one of each two neighbours at random and doubles the weight of the other.
    /// Dropping always the second would lose one of two classes that code allocates in turn.
    fn thin(&mut self, random: &mut Rng) {
        let mut second = false;
        let mut drop_second = false;
        self.samples.retain_mut(|sample| {
            if !second {
                drop_second = random.u32(..2) == 0;
            }
            let kept = second != drop_second;
            second = !second;
            sample.weight *= 2.0;
            kept
        });
        self.keep_one_in = (self.keep_one_in * 2).min(KEEP_ONE_IN_MAX);
        self.thinned += 1;
    }

    /// Follows more of the new samples again when a collection has left room.
    pub(super) fn relax(&mut self) {
        if self.keep_one_in > 1 && self.samples.len() < self.samples_max / 4 {
            self.keep_one_in /= 2;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.samples.capacity() * size_of::<LiveSample>()
    }
}
