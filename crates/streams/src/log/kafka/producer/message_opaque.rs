//! A record's receipt as the one pointer that librdkafka carries per message.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::receipt::Receipt;

/// The receipt's address, with the record's index in the 16 bits that addresses
/// do not use, so that a record needs no allocation. If the index or the
/// address is too large for that, it is a box, marked by the lowest bit.
pub struct MessageOpaque(*mut c_void);

const NUMBER_SHIFT: u32 = 48;
const BOXED: usize = 1;

struct BoxedOpaque {
    receipt: Arc<Receipt>,
    index: usize,
}

impl MessageOpaque {
    pub fn new(receipt: Arc<Receipt>, index: usize) -> Self {
        let pointer = Arc::into_raw(receipt).expose_provenance();
        let number = (index as u64) << NUMBER_SHIFT;
        if usize::BITS == 64 && (pointer as u64) >> NUMBER_SHIFT == 0 && index < 1 << 16 {
            return Self(std::ptr::without_provenance_mut(pointer | number as usize));
        }
        // SAFETY: the pointer of a moment ago, taken back once.
        let receipt = unsafe { Arc::from_raw(std::ptr::with_exposed_provenance(pointer)) };
        let large = Box::into_raw(Box::new(BoxedOpaque { receipt, index })).expose_provenance();
        Self(std::ptr::without_provenance_mut(large | BOXED))
    }

    /// The pointer for librdkafka.
    pub fn as_opaque(&self) -> *mut c_void {
        self.0
    }

    /// Leaves the ownership to librdkafka.
    pub fn hand_over(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Takes the ownership back.
    ///
    /// # Safety
    /// `opaque` is null or of a opaque that was given, and comes back once.
    pub unsafe fn take_back(opaque: *mut c_void) -> Option<(Arc<Receipt>, usize)> {
        if opaque.is_null() {
            return None;
        }
        // SAFETY: as the caller says.
        Some(unsafe { open(opaque.addr()) })
    }
}

/// What a opaque stands for.
///
/// # Safety
/// `packed` is of a opaque, and opened once.
unsafe fn open(packed: usize) -> (Arc<Receipt>, usize) {
    // SAFETY: as it was packed: a box with the lowest bit set, or else a
    // receipt's pointer, which is even, and a number above it.
    unsafe {
        if packed & BOXED == BOXED {
            let large = std::ptr::with_exposed_provenance_mut::<BoxedOpaque>(packed & !BOXED);
            let BoxedOpaque { receipt, index } = *Box::from_raw(large);
            return (receipt, index);
        }
        let index = (packed as u64) >> NUMBER_SHIFT;
        let pointer = (packed as u64) & ((1 << NUMBER_SHIFT) - 1);
        let receipt = std::ptr::with_exposed_provenance(pointer as usize);
        (Arc::from_raw(receipt), index as usize)
    }
}

impl Drop for MessageOpaque {
    fn drop(&mut self) {
        // SAFETY: not given, so nobody else opens it.
        drop(unsafe { open(self.0.addr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_given() {
        for index in [0, 1, 65_535, 65_536, 5_000_000] {
            let receipt = Arc::new(Receipt::new(1));
            let sent = MessageOpaque::new(receipt.clone(), index);
            let opaque = sent.as_opaque();
            sent.hand_over();
            assert_eq!(Arc::strong_count(&receipt), 2);
            // SAFETY: given once, taken back once.
            let (back, number) = unsafe { MessageOpaque::take_back(opaque) }.unwrap();
            assert!(Arc::ptr_eq(&back, &receipt));
            assert_eq!(number, index);
        }
    }

    #[test]
    fn one_that_was_not_given_lets_go_of_its_receipt() {
        for index in [0, 70_000] {
            let receipt = Arc::new(Receipt::new(1));
            drop(MessageOpaque::new(receipt.clone(), index));
            assert_eq!(Arc::strong_count(&receipt), 1);
        }
    }
}
