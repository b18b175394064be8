//! A file that is served, and its compressed forms.

use std::hash::{DefaultHasher, Hasher as _};
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
        let form = form_of(coding);
        let etag = etag_of(stamp.modified_s, stamp.modified_ns, stamp.len, &form);
        Self { coding, name, stamp, etag, bytes: None }
    }

    /// With its content, of which the ETag is then a digest: all files of a reproducible image have one time, and copies
    /// on other machines have other times. It is computed once for each content that is read.
    pub fn with_content(mut self, bytes: Arc<[u8]>) -> Self {
        let mut digest = DefaultHasher::new();
        digest.write(&bytes);
        let (digest, len, form) = (digest.finish(), bytes.len(), form_of(self.coding));
        self.etag = format!("\"{digest:016x}-{len:x}{form}\"");
        self.bytes = Some(bytes);
        self
    }

    /// With the content of the same file that was read before.
    pub fn with_content_of(mut self, same: &Self) -> Self {
        self.etag.clone_from(&same.etag);
        self.bytes.clone_from(&same.bytes);
        self
    }

    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_s: self.stamp.modified_s }
    }
}

fn form_of(coding: Option<ContentCoding>) -> String {
    coding.map_or_else(String::new, |coding| format!("-{}", coding.name()))
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
