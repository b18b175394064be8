//! Functions of Ruby that tell an object's mark, age and size. They are exported, but
//! not part of Ruby's public headers, so they are looked up by name.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use chaton_memory::profile::{CollectionKind, ObjectState};
use magnus::Ruby;
use rb_sys::{ID, VALUE};

use crate::symbol::symbol;

/// `rb_obj_gc_flags`, until Ruby 3.4.
type GcFlags = unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize;
/// `rb_gc_object_metadata`, from Ruby 4.0 on: an array that ends with a zero name.
type GcMetadata = unsafe extern "C" fn(VALUE) -> *const MetadataEntry;
type Memsize = unsafe extern "C" fn(VALUE) -> usize;
/// Called with the start and the end of a page of the heap.
pub type PageCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;
/// `rb_objspace_each_objects`; finishes sweeping before it walks.
pub type EachPage = unsafe extern "C" fn(PageCallback, *mut c_void);

/// One entry of [`GcMetadata`].
#[repr(C)]
struct MetadataEntry {
    name: ID,
    value: VALUE,
}

/// The function that reports the flags of an object.
enum FlagsOf {
    Names(GcFlags),
    Metadata(GcMetadata),
}

impl FlagsOf {
    fn find() -> Option<Self> {
        // SAFETY: signatures of Ruby's internal/gc.h.
        unsafe {
            if let Some(found) = symbol(c"rb_obj_gc_flags") {
                return Some(Self::Names(std::mem::transmute::<*mut c_void, GcFlags>(found)));
            }
            let found = symbol(c"rb_gc_object_metadata")?;
            Some(Self::Metadata(std::mem::transmute::<*mut c_void, GcMetadata>(found)))
        }
    }

    /// Calls `each` with the name of each flag that is set.
    ///
    /// # Safety
    /// An object that has not been swept, with the GVL. The first call must not happen in a
    /// collection, because it creates the names' symbols.
    unsafe fn each(&self, object: VALUE, mut each: impl FnMut(ID)) {
        match self {
            Self::Names(flags) => {
                let mut names = [0 as ID; FLAGS_MAX];
                // SAFETY: as the caller promises; an array of ours.
                let count = unsafe { flags(object, names.as_mut_ptr(), FLAGS_MAX) };
                names[..count.min(FLAGS_MAX)].iter().for_each(|name| each(*name));
            }
            Self::Metadata(metadata) => {
                // SAFETY: as the caller promises; the array is Ruby's and valid until the next call.
                unsafe {
                    let mut entry = metadata(object);
                    while (*entry).name != 0 {
                        if (*entry).value != rb_sys::Qfalse as VALUE {
                            each((*entry).name);
                        }
                        entry = entry.add(1);
                    }
                }
            }
        }
    }
}

/// Flags that Ruby may report for an object.
const FLAGS_MAX: usize = 8;
/// Types whose size Ruby can compute inside a collection without calling code of
/// extensions: Object, String, Array, Hash, Struct, Bignum.
const SIZED: [u8; 6] = [0x01, 0x05, 0x07, 0x08, 0x09, 0x0a];

/// The functions, and the symbols they are called with.
pub struct GcApi {
    flags: FlagsOf,
    memsize: Memsize,
    marked: ID,
    old: ID,
    major_by: VALUE,
    /// Ruby 3.1 only, where liveness is checked by tags (see [`super::tracer_tags`])
    /// and not by a hook at the end of marking.
    pub each_page: Option<EachPage>,
}

static GC_API: OnceLock<Option<GcApi>> = OnceLock::new();

impl GcApi {
    /// The functions of this Ruby, once [`GcApi::load`] has been called.
    pub fn get() -> Option<&'static Self> {
        GC_API.get().and_then(Option::as_ref)
    }

    /// Looks the functions up; `None` when one of them is missing. Call outside of a collection.
    pub fn load(ruby: &Ruby) -> Option<&'static Self> {
        GC_API.get_or_init(|| Self::find(ruby)).as_ref()
    }

    fn find(ruby: &Ruby) -> Option<Self> {
        let is_3_1 = ruby.eval::<String>("RUBY_VERSION").is_ok_and(|v| v.starts_with("3.1."));
        let each_page = if is_3_1 {
            let walk = symbol(c"rb_objspace_each_objects")?;
            // SAFETY: the signature of Ruby's internal/gc.h.
            Some(unsafe { std::mem::transmute::<*mut c_void, EachPage>(walk) })
        } else {
            None
        };
        let flags = FlagsOf::find()?;
        let memsize = symbol(c"rb_obj_memsize_of")?;
        // SAFETY: the signature of Ruby's internal/gc.h; with the GVL.
        let api = unsafe {
            Self {
                flags,
                memsize: std::mem::transmute::<*mut c_void, Memsize>(memsize),
                marked: rb_sys::rb_intern(c"marked".as_ptr()),
                old: rb_sys::rb_intern(c"old".as_ptr()),
                major_by: rb_sys::rb_id2sym(rb_sys::rb_intern(c"major_by".as_ptr())),
                each_page,
            }
        };
        // Both create their symbols in the first call, which must not happen in a collection.
        // SAFETY: a module, which is an object like any; a known key.
        unsafe {
            api.flags.each(rb_sys::rb_mGC, |_| ());
            rb_sys::rb_gc_latest_gc_info(api.major_by);
        }
        Some(api)
    }

    /// The kind of the collection that is running or was the latest.
    pub fn kind(&self) -> CollectionKind {
        // SAFETY: a known key as an immediate symbol.
        let major_by = unsafe { rb_sys::rb_gc_latest_gc_info(self.major_by) };
        if major_by == rb_sys::Qnil as VALUE || major_by == rb_sys::Qfalse as VALUE {
            CollectionKind::Minor
        } else {
            CollectionKind::Major
        }
    }

    /// The state of an object that has not been swept. Unless it is `known_alive` it
    /// is alive if it is marked, which holds at the end of marking.
    pub fn state(&self, object: usize, known_alive: bool) -> ObjectState {
        let (mut marked, mut old) = (false, false);
        // SAFETY: an object that has not been swept; `find` made the first call.
        unsafe {
            self.flags.each(object as VALUE, |name| {
                marked |= name == self.marked;
                old |= name == self.old;
            });
        }
        ObjectState { alive: known_alive || marked, old, bytes: self.size(object), class: 0 }
    }

    /// Bytes of an object that has not been swept; 0 where computing it would call
    /// code of an extension.
    pub fn size(&self, object: usize) -> usize {
        // SAFETY: as above; a slot begins with its flags.
        let kind = unsafe { (*(object as *const rb_sys::RBasic)).flags & 0x1f } as u8;
        if !SIZED.contains(&kind) {
            return 0;
        }
        // SAFETY: as above; for these types it reads the object and calls nothing.
        unsafe { (self.memsize)(object as VALUE) }
    }
}
