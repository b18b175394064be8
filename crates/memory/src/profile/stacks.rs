//! A table of frames, lines and stacks, each kept once.

use std::hash::{Hash, Hasher};

use super::Frame;
use rustc_hash::{FxHashMap, FxHasher};

/// The stack of all samples that found no room.
const OTHER: u32 = 0;
/// The location that stands for frames that were cut off.
const OTHER_LOCATION: u32 = 0;
/// Frames kept of a stack when there is no room for whole ones: enough to reach the
/// allocating line of Ruby below a method or two in C.
const SHORT_DEPTH: usize = 4;

/// A location is a frame and a line; a stack is a list of locations, innermost
/// first. Indices stay the same when compaction moves frames.
///
/// Three quarters of the room are for whole stacks. After that only the innermost
/// frames are kept, so that a leak that begins late still shows its line.
pub(super) struct Stacks {
    stacks_max: usize,
    frames: Vec<(usize, Option<Frame>)>,
    frame_index: FxHashMap<usize, u32>,
    locations: Vec<(u32, u32)>,
    location_index: FxHashMap<(u32, u32), u32>,
    stacks: Vec<Box<[u32]>>,
    /// By the hash of the frames' addresses and lines, so that a stack is found with one
    /// lookup and compared in place.
    stack_index: FxHashMap<u64, u32>,
}

impl Stacks {
    pub(super) fn new(stacks_max: usize) -> Self {
        let other = Frame { label: "(other)".into(), ..Frame::default() };
        Self {
            stacks_max,
            frames: vec![(0, Some(other))],
            frame_index: FxHashMap::default(),
            locations: vec![(0, 0)],
            location_index: FxHashMap::default(),
            stacks: vec![Box::new([OTHER_LOCATION])],
            stack_index: FxHashMap::default(),
        }
    }

    /// The index of a stack, and whether all of it was kept; [`OTHER`] if there is no
    /// room even for its innermost frames.
    pub(super) fn find_or_add(&mut self, frames: &[(usize, u32)]) -> (u32, bool) {
        let whole_max = self.stacks_max - self.stacks_max / 4;
        if let Some(whole) = self.find(frames, false, whole_max) {
            return (whole, true);
        }
        let short = &frames[..frames.len().min(SHORT_DEPTH)];
        (self.find(short, true, self.stacks_max).unwrap_or(OTHER), false)
    }

    fn find(&mut self, frames: &[(usize, u32)], cut: bool, max: usize) -> Option<u32> {
        let hash = hash(frames.iter().copied(), cut);
        match self.stack_index.get(&hash) {
            Some(&known) => self.is(known, frames, cut).then_some(known),
            None if self.stacks.len() > max => None,
            None => {
                let cut = cut.then_some(OTHER_LOCATION);
                let stack = frames.iter().map(|&(frame, line)| self.location(frame, line));
                let stack: Vec<u32> = stack.collect();
                let index = self.stacks.len() as u32;
                self.stacks.push(stack.into_iter().chain(cut).collect());
                self.stack_index.insert(hash, index);
                Some(index)
            }
        }
    }

    fn is(&self, stack: u32, frames: &[(usize, u32)], cut: bool) -> bool {
        let stack = &self.stacks[stack as usize];
        let ends_alike = (stack.last() == Some(&OTHER_LOCATION)) == cut;
        let mut pairs = stack.iter().zip(frames);
        ends_alike
            && stack.len() == frames.len() + usize::from(cut)
            && pairs.all(|(location, frame)| self.address(*location) == *frame)
    }

    /// The frame's address and the line of a location.
    fn address(&self, location: u32) -> (usize, u32) {
        let (frame, line) = self.locations[location as usize];
        (self.frames[frame as usize].0, line)
    }

    fn location(&mut self, frame: usize, line: u32) -> u32 {
        let frames = &mut self.frames;
        let frame = *self.frame_index.entry(frame).or_insert_with(|| {
            frames.push((frame, None));
            frames.len() as u32 - 1
        });
        let locations = &mut self.locations;
        *self.location_index.entry((frame, line)).or_insert_with(|| {
            locations.push((frame, line));
            locations.len() as u32 - 1
        })
    }

    pub(super) fn relocate(&mut self, new_address: &mut impl FnMut(usize) -> usize) {
        self.frame_index.clear();
        for (index, (id, _)) in self.frames.iter_mut().enumerate().skip(1) {
            *id = new_address(*id);
            self.frame_index.insert(*id, index as u32);
        }
        let mut stack_index = std::mem::take(&mut self.stack_index);
        stack_index.clear();
        for (index, stack) in self.stacks.iter().enumerate().skip(1) {
            let cut = stack.last() == Some(&OTHER_LOCATION);
            let kept = &stack[..stack.len() - usize::from(cut)];
            let frames = kept.iter().map(|location| self.address(*location));
            stack_index.insert(hash(frames, cut), index as u32);
        }
        self.stack_index = stack_index;
    }

    pub(super) fn frame_ids(&self) -> impl Iterator<Item = usize> + '_ {
        self.frames.iter().skip(1).map(|(id, _)| *id)
    }

    pub(super) fn unnamed(&self) -> Vec<usize> {
        self.frames.iter().filter(|(_, name)| name.is_none()).map(|(id, _)| *id).collect()
    }

    pub(super) fn name(&mut self, id: usize, name: Frame) {
        if let Some(&index) = self.frame_index.get(&id) {
            self.frames[index as usize].1 = Some(name);
        }
    }

    /// All frames with their names.
    pub(super) fn named_frames(&self) -> Vec<Frame> {
        let unnamed = || Frame { label: "(unnamed)".into(), ..Frame::default() };
        self.frames.iter().map(|(_, name)| name.clone().unwrap_or_else(unnamed)).collect()
    }

    pub(super) fn locations(&self) -> Vec<(u32, u32)> {
        self.locations.clone()
    }

    pub(super) fn stacks(&self) -> Vec<Vec<u32>> {
        self.stacks.iter().map(|stack| stack.to_vec()).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names = self.frames.iter().flat_map(|(_, name)| name);
        let names: usize = names.map(|frame| frame.label.len() + frame.path.len()).sum();
        let stacks: usize = self.stacks.iter().map(|stack| stack.len() * 4).sum();
        names
            + stacks
            + self.frames.capacity() * size_of::<(usize, Option<Frame>)>()
            + self.frame_index.capacity() * 17
            + self.locations.capacity() * 8
            + self.location_index.capacity() * 13
            + self.stacks.capacity() * 16
            + self.stack_index.capacity() * 17
    }
}

fn hash(frames: impl Iterator<Item = (usize, u32)>, cut: bool) -> u64 {
    let mut hash = FxHasher::default();
    for (frame, line) in frames {
        // One word for both: addresses leave the upper bits free.
        hash.write_u64(frame as u64 ^ u64::from(line) << 44);
    }
    cut.hash(&mut hash);
    hash.finish()
}
