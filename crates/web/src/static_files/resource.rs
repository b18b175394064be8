//! A file that is served, and its compressed forms.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::content_coding::{AcceptedCodings, ContentCoding};
use crate::file_answer::etag_of;
use crate::preconditions::Validators;

use super::root::StaticFileStamp;

/// One form of a file: as it is, or compressed beforehand.
pub(super) struct Representation {
    pub coding: Option<ContentCoding>,
    /// Of the file below the root.
    pub name: String,
    pub stamp: StaticFileStamp,
    etag: String,
    /// The content of a small file.
    pub bytes: Option<Arc<[u8]>>,
}

impl Representation {
    pub fn new(coding: Option<ContentCoding>, name: String, stamp: StaticFileStamp) -> Self {
        let mut etag = etag_of(stamp.modified_s, stamp.modified_ns, stamp.len);
        if let Some(coding) = coding {
            // Writing to a String can't fail.
            let _ = write!(etag, "-{}", coding.name());
        }
        etag.push('"');
        Self { coding, name, stamp, etag, bytes: None }
    }

    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_s: self.stamp.modified_s }
    }
}

/// What a path names.
pub(super) struct Resource {
    pub content_type: String,
    /// Its name changes with its content.
    pub is_fingerprinted: bool,
    /// The file as it is, and then the compressed ones.
    pub representations: Vec<Representation>,
}

impl Resource {
    /// The representation that the client prefers.
    pub fn choose(&self, accepted: AcceptedCodings) -> &Representation {
        let coding = accepted.best(|coding| self.representation(Some(coding)).is_some());
        self.representation(coding).unwrap_or(&self.representations[0])
    }

    pub fn representation(&self, coding: Option<ContentCoding>) -> Option<&Representation> {
        self.representations.iter().find(|one| one.coding == coding)
    }

    /// Bytes of content in memory.
    pub fn bytes(&self) -> usize {
        self.representations.iter().filter_map(|one| one.bytes.as_ref()).map(|it| it.len()).sum()
    }

    #[cfg(test)]
    pub fn for_tests(bytes: Vec<u8>) -> Self {
        let (_, stamp) = super::root::RootDirectory::open(std::path::Path::new("/proc/self"))
            .map(|root| root.file("status", true).expect("a regular file"))
            .expect("a directory");
        let representation = Representation {
            bytes: Some(bytes.into()),
            ..Representation::new(None, "status".to_owned(), stamp)
        };
        let representations = vec![representation];
        Self { content_type: "text/plain".to_owned(), is_fingerprinted: false, representations }
    }
}
